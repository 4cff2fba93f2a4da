"""Arrays as parameters of statements: asyncpg looks at their elements by a concrete type, not by an abstract one.

asyncpg asks of each element of each array whether it is an array itself, by `isinstance(element, Iterable)`, and
abstract classes answer that in Python: a tenth of a microsecond each, 6 % of a busy worker. Here only what is made for
it is an array, so that concrete types give the same answer. A batch's arrays hold some twenty elements a command.
"""

from asyncpg.protocol import protocol

#: The driver's own names of what an array must be.
DRIVER_NAMES = ("IterableABC", "SizedABC")
ARRAYS = (list, tuple, set, frozenset)


def look_plainly() -> None:
    """Let arrays be lists, tuples and sets in this process. Anything else that is passed as one is a `DataError`.

    A driver that has other names is left as it is, and slower.
    """
    for name in DRIVER_NAMES:
        if hasattr(protocol, name):
            setattr(protocol, name, ARRAYS)
