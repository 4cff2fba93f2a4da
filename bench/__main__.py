"""`python -m bench`: what `tally bench` runs."""

from workers.__main__ import main

if __name__ == "__main__":
    import sys

    sys.argv.insert(1, "bench")
    main()
