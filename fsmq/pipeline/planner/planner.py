"""Queries that read only the columns they use, by a Java class for Spark's planner.

See DefaultSource.java in this folder.
"""

from __future__ import annotations

import logging
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = "DefaultSource.java"
_CLASS = "fsmq.DefaultSource"
_COMPILER = "org.codehaus.janino.SimpleCompiler"

_log = logging.getLogger(__name__)


def install(spark: SparkSession) -> bool:
    """Give Spark's planner the class, once for a driver.

    Returns False, and queries read all columns, if the driver is on another machine (Spark
    Connect), or the internals of this Spark are different from those of 4.3.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    try:
        # The class loader in which Spark and all its threads look for sources.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if not _is_known(loader):
            compiler = attrgetter(_COMPILER)(jvm)()
            compiler.cook(files(__package__).joinpath(_SOURCE).read_text(encoding="utf-8"))
            _load(jvm, loader, compiler.getBytecodes())
    except (Py4JError, TypeError) as error:  # TypeError: there is no such Java class
        _log.warning(
            "this Spark (%s) cannot be told which columns a query uses: name them with the option"
            " columns: %s",
            spark.version,
            "".join(str(error).splitlines()[:2]),  # the call, and Java's message
        )
        return False
    return True


def _is_known(loader: Any) -> bool:
    try:
        loader.loadClass(_CLASS)
    except Py4JError:
        return False
    return True


def _load(jvm: Any, loader: Any, classes: Any) -> None:
    """Load classes from a folder, which is not needed after that."""
    with TemporaryDirectory(prefix="fsmq-") as folder:
        loader.addURL(jvm.java.io.File(folder).toURI().toURL())
        for name in classes:
            path = Path(folder, *name.split(".")).with_suffix(".class")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes(classes[name]))
        for name in classes:
            loader.loadClass(name)
