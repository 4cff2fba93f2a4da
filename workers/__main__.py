"""`tally` and `python -m workers`."""

from workers.cli import app


def main() -> None:
    """Run the command line."""
    app(prog_name="tally")


if __name__ == "__main__":
    main()
