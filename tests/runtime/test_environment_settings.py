"""Every variable: its default, what it accepts, and the one sentence when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime_children import held, python

from stayfast.errors import SettingError
from stayfast.settings import VARIABLES, Settings, read_settings

BAD: dict[str, list[str]] = {
    **{
        name: ["soon", "-1", "nan", "inf", "1e999", "1,5"]
        for name in (
            "STAYFAST_GRACE_SECONDS",
            "STAYFAST_TERMINATION_GRACE_SECONDS",
            "STAYFAST_SHUTDOWN_GRACE_SECONDS",
            "STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS",
            "STAYFAST_MARGIN_SECONDS",
            "STAYFAST_LEASE_LEAD_SECONDS",
            "STAYFAST_CHECKPOINT_SECONDS",
            "STAYFAST_USD_PER_HOUR",
        )
    },
    "STAYFAST_INTERRUPTED_CODE": ["-1", "256", "seventy-five", "7.5"],
    "STAYFAST_MAX_STALLED_ATTEMPTS": ["0", "-3", "few"],
    "STAYFAST_EXTRA_SIGNAL": ["SIGKILL", "SIGSTOP", "SIGCHLD", "SIGNOTHING", "10", "SIG_DFL", "SIG"],
    "STAYFAST_LEASE_ENDS_AT": ["tomorrow", "2026-11-15T20:03:37", "1763237017", "2026-13-45T00:00:00Z"],
    "STAYFAST_METADATA": ["yes", "ON"],
    "STAYFAST_CAPACITY": ["Spot", "preemptible"],
    "GCE_METADATA_HOST": ["http://metadata", "host:port", "host:99999", "a b", "host/../x", "[::1"],
    "JOB_COMPLETION_INDEX": ["-1", "a", "../../etc", "1.5", "²"],
    "RANK": ["-1", "one"],
    "WORLD_SIZE": ["0", "-2", "two"],
    "STAYFAST_SPANS": ["yes", "ON", "1"],
    "STAYFAST_METRICS_PORT": ["x", "-1", "65536", "1.5"],
}
FREE_TEXT = {
    "STAYFAST_FINGERPRINTS",
    "STAYFAST_LEASE_FILE",
    "STAYFAST_NOTICE_FILE",
    "STAYFAST_NOTICE_SOURCES",
    "STAYFAST_OUTCOME_DIR",
    "STAYFAST_OUTCOME_FILE",
    "STAYFAST_TERMINATION_LOG",
    "STAYFAST_MACHINE",
    "STAYFAST_METRICS_ADDRESS",
    "STAYFAST_BILLING_API_KEY",
    "STAYFAST_BILLING_ENDPOINT",
    "STAYFAST_CATALOGUE",
    "STAYFAST_QUEUE",
    "STAYFAST_SINK",
    "STAYFAST_WEBHOOK_URL",
    "STAYFAST_ZONE",
}
ELSEWHERE = {
    "STAYFAST_BILLING_API_KEY",
    "STAYFAST_BILLING_ENDPOINT",
    "STAYFAST_CATALOGUE",
    "STAYFAST_QUEUE",
    "STAYFAST_SINK",
    "STAYFAST_WEBHOOK_URL",
}
"""Read by the one command that uses them."""
CASES = [(name, value) for name, values in BAD.items() for value in values]


def test_every_variable_is_either_free_text_or_has_bad_values_here() -> None:
    names = {item.name for item in VARIABLES}
    assert names >= BAD.keys() | FREE_TEXT
    missing = {name for name in names if name not in BAD and name not in FREE_TEXT and name.startswith("STAYFAST_")}
    assert missing == set(), "say here what this variable refuses"


def test_table_settings_and_documentation_are_equal() -> None:
    assert {item.field for item in VARIABLES if item.field} == set(Settings._fields)
    assert {item.name for item in VARIABLES if not item.field} == ELSEWHERE
    assert all((item.parse is None) == (not item.field) for item in VARIABLES)
    page = Path(__file__).parents[2] / "docs" / "reference" / "environment.md"
    rows = [line.split("|")[1:4] for line in page.read_text().splitlines() if line.startswith("| `")]
    documented = [tuple(cell.strip() for cell in row) for row in rows]
    assert set(documented) == {(f"`{item.name}`", item.default, item.meaning) for item in VARIABLES}


@pytest.mark.parametrize(("name", "value"), CASES)
def test_an_unusable_value_is_one_sentence_with_name_and_value(name: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({name: value})
    sentence = str(caught.value)
    assert f"{name}={value!r}" in sentence or f"{name}={value}" in sentence
    assert "\n" not in sentence
    assert ";" in sentence, "it says what to do"


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_empty_means_unset(name: str) -> None:
    assert read_settings({name: ""}) == read_settings({name: "  "}) == read_settings({}) == Settings()


def test_shares_that_contradict_each_other() -> None:
    with pytest.raises(SettingError, match=r"STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS=40 .*_SECONDS=30"):
        read_settings({"STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS": "40"})
    with pytest.raises(SettingError, match="RANK=2 is not below WORLD_SIZE=2"):
        read_settings({"RANK": "2", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("variables", "window"),
    [
        ({}, 15.0),
        ({"STAYFAST_SHUTDOWN_GRACE_SECONDS": "120"}, 105.0),
        ({"STAYFAST_TERMINATION_GRACE_SECONDS": "10"}, 10.0),
        ({"STAYFAST_TERMINATION_GRACE_SECONDS": "25"}, 15.0),
        ({"STAYFAST_GRACE_SECONDS": "5", "STAYFAST_TERMINATION_GRACE_SECONDS": "10"}, 5.0),
        ({"STAYFAST_SHUTDOWN_GRACE_SECONDS": "0", "STAYFAST_SHUTDOWN_GRACE_CRITICAL_SECONDS": "0"}, 0.0),
    ],
)
def test_the_window_is_what_a_pod_really_gets(variables: dict[str, str], window: float) -> None:
    assert read_settings(variables).window_seconds == window


def test_signal_names_in_any_spelling() -> None:
    import signal

    for text in ("SIGUSR1", "usr1", "Usr1"):
        assert read_settings({"STAYFAST_EXTRA_SIGNAL": text}).extra_signal == signal.SIGUSR1


@pytest.mark.parametrize(("name", "value"), [(name, values[0]) for name, values in BAD.items()])
def test_the_command_line_says_it_without_a_traceback_and_starts_nothing(name: str, value: str) -> None:
    ended = held("exec", "--", "echo", "started", **{name: value}).end()
    assert ended.code == 2
    assert ended.err.startswith(f"stayfast: {name}=")
    assert ended.err.count("\n") == 1
    assert "started" not in ended.out


def test_a_lease_end_in_the_past_is_one_sentence_and_nothing_is_written(tmp_path: object) -> None:
    ended = python(
        """
        import sys, stayfast
        try:
            with stayfast.run(sys.argv[1]) as run:
                print("entered")
        except stayfast.StayfastError as error:
            print(type(error).__name__, error)
        """,
        f"file://{tmp_path}/run",
        STAYFAST_LEASE_ENDS_AT="2020-01-01T00:00:00Z",
    ).end()
    assert ended.out.startswith("SettingError STAYFAST_LEASE_ENDS_AT=2020-01-01T00:00:00.000Z is in the past;")
    assert "entered" not in ended.out
    import pathlib

    assert list(pathlib.Path(str(tmp_path)).iterdir()) == []
