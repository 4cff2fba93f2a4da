"""Python's cyclic garbage collector in a worker: rarely, and not over what stays.

A batch makes and drops tens of thousands of containers, none of them in cycles: reference counts free them at once. At
its defaults the collector looks through them every 700 and takes a fifth of the CPU; with 100,000 live stores each
full look stops the worker for seconds. The batches that are under way together hold some 60,000. What cycles there are
(exceptions, futures) is still found, later.
"""

import gc

_YOUNG_CONTAINERS = 200_000
_YOUNG_LOOKS_PER_MIDDLE = 20
_MIDDLE_LOOKS_PER_FULL = 100


def relax() -> None:
    """Leave what was imported alone for good, and look for cycles seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_CONTAINERS, _YOUNG_LOOKS_PER_MIDDLE, _MIDDLE_LOOKS_PER_FULL)
