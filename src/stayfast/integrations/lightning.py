"""Lightning: one callback that makes ``trainer.fit`` a run.

::

    trainer = L.Trainer(max_epochs=10, callbacks=[StayfastCallback("gs://bucket/runs/llm-7")])
    trainer.fit(model, StatefulDataLoader(...))

The same command, started again, resumes. What is kept is Lightning's own checkpoint (weights, optimizers, schedulers,
loops, callbacks, precision, data position) and the random number generators, in stayfast's encoding and commit; the
boundary is the end of a training batch. On a notice the callback saves there and ``fit`` ends with
``stayfast.Interrupted``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from lightning.pytorch.callbacks import Checkpoint

from stayfast.errors import UsageError
from stayfast.runtime.runs.run import Run, run
from stayfast.runtime.state.data_loaders import check_data
from stayfast.runtime.state.tracked_state import GlobalRandomState
from stayfast.settings import read_settings

_NOT_STATE = ("hyper_parameters", "hparams_name", "hparams_type", "datamodule_hyper_parameters")
"""The program's own arguments: they may be of any type, and the resumed program has them."""

_FINISHED = "_iterator_finished"
"""torchdata's name for it in a StatefulDataLoader's state."""


class StayfastCallback(Checkpoint):  # type: ignore[misc]  # lightning has no types when it is not installed
    """Opens a run around ``trainer.fit``; options are those of ``stayfast.run``.

    A ``Checkpoint`` by kind: Lightning calls it after all other callbacks, so that their changes are in what is saved.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options
        self._run: Run | None = None
        self._trainer: Any = None
        self._step = 0
        self._loaded: dict[str, Any] | None = None
        self._logged: int | None = None
        self._before_validation: dict[str, Any] | None = None

    @property
    def run(self) -> Run:
        """The open run: its attempt, its notice, ``save()`` and the rest."""
        if self._run is None:
            raise UsageError("no run is open", help="use it while trainer.fit runs")
        return self._run

    # -- Lightning's hooks, in the order they come

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Claim the run and read what the last attempt committed, before Lightning restores anything."""
        if stage != "fit":
            return
        settings = read_settings()._replace(rank=trainer.global_rank, world_size=trainer.world_size)
        opened = run(self._url, settings=settings, rng=False, **self._options)
        opened.__enter__()
        self._run, self._trainer = opened, trainer
        opened.track(lightning=(self._dump, self._take))
        self._step = opened.restore()
        if self._loaded is not None:
            _resume_from(trainer, self._loaded["checkpoint"])

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The last hook before the first batch; Lightning has restored all it does by now, and made the iterators."""
        loop = trainer.fit_loop
        _check_data(loop)
        trainer._signal_connector.teardown()  # notices are ours; Lightning would raise between two boundaries
        if self._loaded is None:
            return
        loaded, self._loaded = self._loaded, None
        epochs = _set_epochs(loop)
        if loaded["epoch_ended"] or epochs:  # Lightning restores the data's state within an epoch only, and too early
            loop._combined_loader._load_state_dicts(
                loaded["checkpoint"]["loops"]["fit_loop"]["state_dict"].get("combined_loader", [])
            )
            iter(loop._data_fetcher)
        for name, parameter in pl_module.named_parameters():
            if name in loaded["gradients"]:
                parameter.grad = loaded["gradients"][name].to(parameter.device)
        GlobalRandomState().load_state_dict(loaded["rng"])  # last: iterators and restoring may draw from the generators
        if loaded["epoch_ended"]:
            _draw_seeds(loop._combined_loader.flattened)
        self._logged = loaded["logged"]

    def on_train_batch_start(self, trainer: Any, *_args: Any) -> None:
        """Lightning counts one logging step too many when it resumes at some places."""
        if self._logged is not None:
            trainer.fit_loop.epoch_loop._batches_that_stepped, self._logged = self._logged, None

    def on_train_batch_end(self, trainer: Any, *_args: Any) -> None:
        """The boundary. Before a validation or the end of an epoch only a notice is obeyed: what comes there, hooks and
        metrics, would be missing after a resume from here."""
        step, self._step = self._step, self._step + 1
        loop = trainer.fit_loop
        validates = bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))
        if validates:
            self._before_validation = GlobalRandomState().state_dict()
        if (validates or loop.epoch_loop.batch_progress.is_last_batch) and self.run._passes(step):
            return
        if self.run.should_stop(step):
            self._end()

    def on_validation_batch_end(self, trainer: Any, *_args: Any) -> None:
        """A validation may outlast the grace window: on a notice it is given up, as if it had not begun."""
        if self._before_validation is not None and not trainer.sanity_checking and self.run.notice is not None:
            GlobalRandomState().load_state_dict(self._before_validation)
            if self.run.should_stop(self._step - 1):
                self._end()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Validation leaves the generators as it found them: after a resume it may not be run again."""
        if self._before_validation is not None and not trainer.sanity_checking:
            GlobalRandomState().load_state_dict(self._before_validation)
            self._before_validation = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """All batches are done; the last may have been passed over above."""
        if self._run is not None and self._step:
            if not self._run.should_stop(self._step - 1):
                self._run.finish("trainer.fit ended")  # by max_epochs, max_steps or early stopping
            self._end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Only a fit that found nothing left to do comes here with the run open."""
        if stage == "fit":
            if self._loaded is not None:
                GlobalRandomState().load_state_dict(self._loaded["rng"])
            self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        self._end(exception)

    # -- inside

    def _end(self, error: BaseException | None = None) -> None:
        """Leave the run's block: finished, interrupted (raises ``Interrupted``) or failed."""
        if self._run is not None:
            opened, self._run = self._run, None
            try:
                opened.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
            finally:
                self._trainer = self._loaded = self._before_validation = None

    def _dump(self) -> dict[str, Any]:
        trainer = self._trainer
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        for name in _NOT_STATE:
            checkpoint.pop(name, None)
        loop = trainer.fit_loop.epoch_loop
        ended = bool(loop.batch_progress.is_last_batch)
        accumulates = bool(loop._should_accumulate())
        keeps = accumulates or not trainer.lightning_module.automatic_optimization
        _as_at_boundary(checkpoint["loops"]["fit_loop"], epoch_ended=ended)
        return {
            "checkpoint": checkpoint,
            "gradients": _gradients(trainer.lightning_module) if keeps else {},
            "rng": GlobalRandomState().state_dict(),
            "epoch_ended": ended,
            "logged": loop._batches_that_stepped + (not accumulates),
        }

    def _take(self, state: dict[str, Any]) -> None:
        self._loaded = state


def _as_at_boundary(loops: dict[str, Any], *, epoch_ended: bool) -> None:
    """Progress as Lightning resumes from it exactly: after a batch, or before the first batch of the next epoch."""
    batch, epoch = loops["epoch_loop.batch_progress"], loops["epoch_progress"]
    for rows in _progress_rows({key: row for key, row in loops.items() if key.startswith("epoch_loop.val_loop.")}):
        rows.update(dict.fromkeys(rows, 0))
    if not epoch_ended:
        for rows in (batch["total"], batch["current"]):
            rows["completed"] = rows["processed"] - 1
        return
    batch["is_last_batch"] = False
    batch["total"]["completed"] = batch["total"]["processed"]
    for rows in (epoch["total"], epoch["current"]):
        rows["processed"] = rows["completed"] = rows["started"]
    for key in ("batch_progress", "scheduler_progress", "automatic_optimization.optim_progress"):
        for rows in _progress_rows(loops[f"epoch_loop.{key}"], only="current"):
            rows.update(dict.fromkeys(rows, 0))
    for loader in loops["state_dict"].get("combined_loader", ()):
        if _FINISHED in loader:
            loader[_FINISHED] = True  # it learns that only when asked for one more batch, which nobody does


def _progress_rows(tree: dict[str, Any], only: str | None = None) -> Iterator[dict[str, int]]:
    """All counters in a tree of progress: those that count the whole, the current part, or both."""
    for key, value in tree.items():
        if not isinstance(value, dict):
            continue
        if key in ("total", "current"):
            if only in (None, key):
                yield value
        else:
            yield from _progress_rows(value, only)


def _resume_from(trainer: Any, checkpoint: dict[str, Any]) -> None:
    """Give Lightning the checkpoint as if it had read it itself; a ``ckpt_path`` was for the first attempt."""
    connector = trainer._checkpoint_connector
    connector._loaded_checkpoint = checkpoint
    connector.resume_start = lambda *_args, **_options: connector.__dict__.pop("resume_start", None)


def _gradients(module: Any) -> dict[str, Any]:
    """What has been accumulated since the last optimizer step; Lightning's checkpoint leaves it out."""
    return {name: item.grad for name, item in module.named_parameters() if item.grad is not None}


def _check_data(loop: Any) -> None:
    """Data whose place Lightning cannot restore exactly is refused at once, not found out after the first notice."""
    for loader in loop._combined_loader.flattened:
        if not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
            raise UsageError(
                f"a plain {type(loader).__name__} cannot say where it is",
                help="give the trainer a torchdata.stateful_dataloader.StatefulDataLoader; its arguments are the same",
            )
        if hasattr(loader, "dataset"):
            check_data(loader)
        if any(isinstance(sampler, DistributedSamplerWrapper) for sampler in _samplers(loader)):
            raise UsageError(
                "Lightning has wrapped the sampler of the training loader for several ranks, and the position of that "
                "wrapper cannot be restored",
                help="give the loader sampler=DistributedSampler(dataset), in train_dataloader()",
            )
    if loop._data_fetcher.length is None:
        raise UsageError(
            "training data without a length cannot be resumed exactly: Lightning fetches one batch ahead of it",
            help="give the data set a __len__",
        )


def _set_epochs(loop: Any) -> bool:
    """Set the epoch of the samplers that have one: Lightning does so after it has made the iterators."""
    found = False
    for loader in loop._combined_loader.flattened:
        for sampler in _samplers(loader):
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(loop.epoch_progress.current.processed)
                found = True
    return found


def _samplers(loader: Any) -> list[Any]:
    """Where Lightning itself looks for the sampler of a loader."""
    return [getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)]


def _draw_seeds(loaders: list[Any]) -> None:
    """What a new epoch draws in the uninterrupted run: every DataLoader's iterator takes one seed for its workers."""
    import torch

    for loader in loaders:
        if isinstance(loader, torch.utils.data.DataLoader) and loader.generator is None:
            torch.empty((), dtype=torch.int64).random_()
