"""Local files for Spark without a process for each of them.

Without its native library, which PySpark lacks, Hadoop runs ``chmod`` for modes and ``readlink``
for links: about thirty processes in each micro-batch. `without_processes` gives the JVM of a
session classes that do the same in Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop has two interfaces to a filesystem, and Spark's checkpoints use the second.
_CLASSES = {"fs.file.impl": "Local", "fs.AbstractFileSystem.file.impl": "Context"}
_SOURCE = """
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.Set;
import java.nio.file.attribute.PosixFilePermission;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

public class Local extends LocalFileSystem {
    public Local() {
        super(new Raw());
    }
}

class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission mode) throws IOException {
        PosixFilePermission[] all = PosixFilePermission.values();  // from r of the owner on
        Set wanted = new HashSet();
        for (int n = 0; n < all.length; n++) {
            if ((mode.toShort() & (0400 >> n)) != 0) {
                wanted.add(all[n]);
            }
        }
        Files.setPosixFilePermissions(pathToFile(path).toPath(), wanted);
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        File file = pathToFile(path);
        return Files.isSymbolicLink(file.toPath())
            ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}

class RawContext extends DelegateToFileSystem {
    RawContext(URI uri, Configuration settings) throws Exception {
        super(uri, new Raw(), settings, "file", false);
    }

    public int getUriDefaultPort() {
        return -1;
    }

    public FsServerDefaults getServerDefaults() throws IOException {
        return LocalConfigKeys.getServerDefaults();
    }

    public boolean isValidName(String path) {
        return true;
    }
}

class Context extends ChecksumFs {
    Context(URI uri, Configuration settings) throws Exception {
        super(new RawContext(uri, settings));
    }
}
"""


def without_processes(spark: SparkSession) -> None:
    """Let the JVM of Spark use Java for local files."""
    jvm: Any = spark.sparkContext._jvm
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    compiler = getattr(jvm, "org.codehaus.janino.SimpleCompiler")()
    compiler.cook(_SOURCE)
    # Copies of the settings keep the class loader.
    settings.setClassLoader(compiler.getClassLoader())
    for name, kind in _CLASSES.items():
        settings.set(name, kind)
    files = getattr(jvm, "org.apache.hadoop.fs.FileSystem")
    files.getLocal(settings).close()  # removes it from the cache of tasks
    assert files.getLocal(settings).getClass().getName() == _CLASSES["fs.file.impl"]
