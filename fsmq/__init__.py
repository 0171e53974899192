"""fsmq: a durable message queue whose whole state is a directory tree.

>>> from fsmq import Spool
>>> jobs = Spool("/var/lib/fsmq").queue("jobs")
>>> jobs.put(b"hello")
>>> for message in jobs.claim(count=10, visibility=60):
...     print(message.body)
...     jobs.remove(message.id)
"""

from ._version import __version__ as __version__
from .spool import *  # noqa: F403
from .spool import __all__ as __all__
