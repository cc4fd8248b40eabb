"""Hugging Face Transformers: a callback that makes ``Trainer.train`` a run.

::

    survive = StayfastCallback("gs://bucket/runs/llm-7")
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[survive])
    survive.train(trainer)                     # instead of trainer.train()

The same command, started again, resumes: weights, optimizer, scheduler, scaler, the trainer's state, the random number
generators, and the very next batch. The boundary is the end of an optimizer step. A callback alone cannot tell the
trainer where to begin, hence ``survive.train``: it hands the restored state to the methods with which the trainer loads
its own checkpoints, so that the trainer itself skips what has been seen.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import has_length

from stayfast.errors import UsageError
from stayfast.runtime.runs.run import Run, run
from stayfast.runtime.state.tracked_state import GlobalRandomState
from stayfast.settings import read_settings

TRAINER_STATE = "trainer_state.json"
"""The trainer's name for it."""


class _Stop(BaseException):
    """Leave the trainer's loop at a boundary; never seen outside ``StayfastCallback.train``."""


class StayfastCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types when it is not installed
    """Opens a run around the trainer; options are those of ``stayfast.run``."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options
        self._run: Run | None = None
        self._trainer: Any = None
        self._collate: _PrefetchAwareCollate | None = None
        self._loaded: dict[str, Any] | None = None
        self._before_evaluation: dict[str, Any] | None = None
        self._passes = 0

    @property
    def run(self) -> Run:
        """The open run: its attempt, its notice, ``save()`` and the rest."""
        if self._run is None:
            raise UsageError("no run is open", help="start the training with callback.train(trainer)")
        return self._run

    def train(self, trainer: Any, **options: Any) -> Any:
        """``trainer.train(**options)`` as a run; on a notice it saves, drains and raises ``stayfast.Interrupted``.

        ``resume_from_checkpoint`` counts while the run has nothing of its own to resume from.
        """
        _check(trainer, self)
        settings = read_settings()._replace(rank=trainer.args.process_index, world_size=trainer.args.world_size)
        with run(self._url, settings=settings, rng=False, **self._options) as opened:
            self._run, self._trainer, self._loaded, self._passes = opened, trainer, None, 0
            try:
                opened.track(trainer=(self._dump, self._take))
                opened.restore()
                with _changed(trainer, get_train_dataloader=self._loader), self._resuming(trainer, options):
                    result = trainer.train(**options)
                opened.finish("trainer.train ended")  # by max_steps, epochs or early stopping
                return result
            except _Stop:
                return None  # the end of the block saves, drains and raises
            finally:
                self._run = None

    # -- the trainer's hooks

    def on_train_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        assert self.run is not None  # raises when the trainer was started without us

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Without a length the trainer cannot tell the second pass over the data from the first when it resumes."""
        self._passes += 1
        if self._passes > 1 and not has_length(kwargs["train_dataloader"]):
            self.run.save(now=True)
            raise UsageError(
                f"the training data has no length and its first pass ended at step {state.global_step}: a resume from "
                "a later step would take other batches",
                help="give the data set a __len__, or let it repeat itself; the run resumes from that step",
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """The boundary. Before an evaluation or the end of an epoch only a notice is obeyed: what comes there would be
        missing after a resume from here."""
        if control.should_evaluate:
            self._before_evaluation = GlobalRandomState().state_dict()
        passes = control.should_evaluate or float(state.epoch).is_integer()
        last = state.global_step >= state.max_steps
        if passes and not last and self.run._passes(state.global_step - 1):
            return
        if self.run.should_stop(state.global_step - 1):
            raise _Stop

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        if control.should_evaluate:
            self._before_evaluation = GlobalRandomState().state_dict()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """An evaluation may outlast the grace window: on a notice it is given up, as if it had not begun."""
        if self._before_evaluation is not None and self.run.notice is not None:
            GlobalRandomState().load_state_dict(self._before_evaluation)
            if self.run.should_stop(state.global_step - 1):
                raise _Stop

    def on_evaluate(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        """Evaluation leaves the generators as it found them: after a resume it may not be run again."""
        if self._before_evaluation is not None:
            GlobalRandomState().load_state_dict(self._before_evaluation)
            self._before_evaluation = None

    # -- saving

    def _dump(self) -> dict[str, Any]:
        trainer = self._trainer
        scaler = getattr(trainer.accelerator, "scaler", None)
        assert self._collate is not None
        return {
            "model": trainer.model.state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "state": _state_as_json(trainer),
            "rng": GlobalRandomState().state_dict(),
            "ahead": self._collate.ahead(),
        }

    # -- restoring

    def _take(self, state: dict[str, Any]) -> None:
        self._loaded = state

    def _loader(self) -> Any:
        """The trainer's loader, with a collate function that remembers the batch which is fetched ahead."""
        loader = type(self._trainer).get_train_dataloader(self._trainer)
        base = getattr(loader, "base_dataloader", loader)  # accelerate's loaders iterate another one inside
        self._collate = _PrefetchAwareCollate(base.collate_fn)
        if self._loaded is not None:
            self._collate.replay(self._loaded["ahead"], self._loaded["rng"])
        base.collate_fn = self._collate
        return loader

    @contextmanager
    def _resuming(self, trainer: Any, options: dict[str, Any]) -> Iterator[None]:
        """The trainer resumes from a directory that holds its state alone; the rest it asks of us."""
        if self._loaded is None:
            yield
            return
        with (
            tempfile.TemporaryDirectory(prefix="stayfast-") as folder,
            _changed(
                trainer,
                _load_from_checkpoint=self._load_model,
                _load_optimizer_and_scheduler=self._load_optimizer,
                _load_scaler=self._load_scaler,
                _load_rng_state=self._load_rng,
            ),
        ):
            with open(os.path.join(folder, TRAINER_STATE), "w", encoding="utf-8") as file:
                file.write(self._loaded["state"])
            options["resume_from_checkpoint"] = folder
            yield

    def _load_model(self, _folder: str, model: Any = None) -> None:
        assert self._loaded is not None
        (model or self._trainer.model).load_state_dict(self._loaded["model"])

    def _load_optimizer(self, _folder: str) -> None:
        assert self._loaded is not None
        self._trainer.optimizer.load_state_dict(self._loaded["optimizer"])
        self._trainer.lr_scheduler.load_state_dict(self._loaded["scheduler"])

    def _load_scaler(self, _folder: str) -> None:
        assert self._loaded is not None
        if self._loaded["scaler"] is not None:
            self._trainer.accelerator.scaler.load_state_dict(self._loaded["scaler"])

    def _load_rng(self, _folder: str) -> None:
        """Called before an epoch's iterator is made, or after the first batch within an epoch was fetched."""
        assert self._loaded is not None
        assert self._collate is not None
        if not self._collate.replayed:
            self._collate.forget()
            GlobalRandomState().load_state_dict(self._loaded["rng"])


def _check(trainer: Any, callback: StayfastCallback) -> None:
    if callback not in trainer.callback_handler.callbacks:
        trainer.add_callback(callback)
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        raise UsageError(
            "the trainer shards its state by FSDP or DeepSpeed, which this callback does not save",
            help="use a loop of your own with stayfast.integrations.dcp.sharded",
        )
    if trainer.args.auto_find_batch_size:
        raise UsageError("auto_find_batch_size changes the data order between attempts", help="set a batch size")
    if trainer.args.ignore_data_skip:
        raise UsageError("ignore_data_skip repeats samples after a resume", help="leave it off")


def _state_as_json(trainer: Any) -> str:
    """The trainer's state as it writes it, with the callbacks' states brought up to date."""
    import json

    state = trainer.state
    for item in [*trainer.callback_handler.callbacks, trainer.control]:
        if isinstance(item, ExportableState):
            state.stateful_callbacks[type(item).__name__] = item.state()
    return json.dumps(dataclasses.asdict(state), sort_keys=True)


@contextmanager
def _changed(thing: Any, **methods: Any) -> Iterator[None]:
    """Methods of one object replaced for a while."""
    vars(thing).update(methods)
    try:
        yield
    finally:
        for name in methods:
            vars(thing).pop(name, None)


class _PrefetchAwareCollate:
    """Wraps the collate function of a loader that fetches one batch ahead (accelerate does).

    That batch is part of the state. What is random in it (masking, augmentation) was drawn before the last step ran;
    after a resume the same batch must come again and the generators must stand where they stood after that step. So the
    collate function remembers the batch it made last, a checkpoint keeps it, and the first call after a resume gives it
    back. In worker processes it changes nothing: their batches are not made in this one.
    """

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._last: Any = None
        self._again: dict[str, Any] | None = None
        self._rng: dict[str, Any] | None = None
        self.replayed = False
        """Whether a batch has been given back, and the generators with it."""

    def __call__(self, features: Any) -> Any:
        batch = self._inner(features)
        if self._again is not None and _is_dict(batch) and set(batch.keys()) == set(self._again):
            batch.update(self._again)
            assert self._rng is not None
            GlobalRandomState().load_state_dict(self._rng)
            self.forget()
            self.replayed = True
        self._last = batch
        return batch

    def ahead(self) -> dict[str, Any] | None:
        """The batch made last, when it was made in this process and is one that can be kept."""
        return dict(self._last) if _is_dict(self._last) else None

    def replay(self, batch: dict[str, Any] | None, rng: dict[str, Any]) -> None:
        """Give this batch back in place of the next one, and then set the generators."""
        self._again, self._rng, self.replayed = batch, rng, False

    def forget(self) -> None:
        """Give nothing back: the next batch begins an epoch."""
        self._again = self._rng = None


def _is_dict(batch: Any) -> bool:
    """Dictionaries, and what looks like one without being one (BatchEncoding)."""
    return hasattr(batch, "keys") and hasattr(batch, "update")
