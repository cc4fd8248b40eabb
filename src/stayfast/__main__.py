"""``python -m stayfast``: the same as the ``stayfast`` command."""

from stayfast.cli.main import entry

if __name__ == "__main__":
    entry()
