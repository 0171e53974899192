// The source fsmq as Spark's planner sees it: it reads the columns that a query uses, and no
// others, and each query has its filters for itself. Options are checked when a source is named, an
// error is one line, and a stream tells how far it is behind.
//
// Spark 4.3 does none of that for a source in Python, although it can for one in Java. So this is
// one: it stands before Spark's own class for sources in Python and leaves all work to that.
//
// Compiled when a session is made, by the compiler that Spark brings for its own code; that one
// knows no lambdas, and of type arguments only what is written out.

package fsmq;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.QueryExecutionException;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.Some;

/** What {@code format("fsmq")} means: Spark looks for a class of this name in a package fsmq. */
public class DefaultSource extends PythonDataSourceV2 {
    // The name of the source in Python, which may not be that of one in Java.
    static final String IN_PYTHON = "fsmq.python";

    @Override
    public void setShortName(String given) {
        super.setShortName(IN_PYTHON);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
        if (use().length() > 0) {
            // What a later query would do is done now, so that the options are looked at now.
            CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
            getOrCreateDataSourceInPython(IN_PYTHON, given, new Some(schema));
        }
        return new Messages(this, schema);
    }

    @Override
    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
            String name, CaseInsensitiveStringMap options, Option<StructType> schema) {
        Map<String, String> more = new HashMap<String, String>(options.asCaseSensitiveMap());
        more.put("fsmq.use", use());
        if (schema.isDefined()) {
            more.put("fsmq.schema", ((StructType) schema.get()).json());
        }
        try {
            CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(more);
            return super.getOrCreateDataSourceInPython(name, all, schema);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public PythonDataSourceReadInfo getOrCreateReadInfo(
            String name, CaseInsensitiveStringMap options, StructType schema, boolean isStreaming) {
        try {
            return super.getOrCreateReadInfo(name, options, schema, isStreaming);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    /** For what the source is named, by which method of Spark's API: only its caller knows. */
    static String use() {
        StackTraceElement[] callers = Thread.currentThread().getStackTrace();
        for (int i = 0; i < callers.length; i++) {
            String name = callers[i].getClassName();
            for (int k = 0; k < USES.length; k++) {
                if (name.startsWith("org.apache.spark.sql.") && name.endsWith("." + USES[k])) {
                    return USES[k];
                }
            }
        }
        return "";
    }

    private static final String[] USES = new String[] {
        "DataStreamReader", "DataFrameReader", "DataStreamWriter"
    };
}

/** Errors of Python, of whose text the last line of a traceback is for people. */
class Fault {
    static RuntimeException shortened(Throwable error) {
        String text = String.valueOf(error.getMessage());
        if (text.indexOf("DATA_SOURCE_NOT_EXIST") >= 0 && text.indexOf(DefaultSource.IN_PYTHON) > 0) {
            return new IllegalArgumentException(
                "this session does not know the source fsmq: call fsmq.pipeline.register(spark) in"
                + " each session, also in one that newSession() has made");
        }
        String[] lines = text.split("\n");
        for (int i = lines.length - 1; i >= 0; i--) {
            // "fsmq.spool.errors.InvalidValue: option root: ..."
            if (lines[i].startsWith("fsmq.") && lines[i].indexOf(": ") > 0) {
                if (lines[i].indexOf(".InvalidValue: ") > 0) {
                    return new IllegalArgumentException(lines[i]);
                }
                Platform.throwException(new QueryExecutionException(lines[i], null));
            }
        }
        Platform.throwException(error);
        return null;
    }
}

/** Messages, from which one DataFrame may make many queries. */
class Messages extends PythonTable {
    private final DefaultSource source;

    Messages(DefaultSource source, StructType schema) {
        super(source, DefaultSource.IN_PYTHON, schema);
        this.source = source;
    }

    /** As plans show it. */
    @Override
    public String name() {
        return "fsmq";
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new Query(source, schema(), options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new Writing(source, info);
    }
}

/** What one query wants of the messages. */
class Query implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private final DefaultSource source;
    private final CaseInsensitiveStringMap options;
    private StructType columns;
    private Filter[] filters = new Filter[0];

    Query(DefaultSource source, StructType columns, CaseInsensitiveStringMap options) {
        this.source = source;
        this.columns = columns;
        this.options = options;
    }

    /** Takes all of them as a hint: Spark filters once more. */
    @Override
    public Filter[] pushFilters(Filter[] given) {
        filters = given;
        return given;
    }

    /** Those that Spark need not evaluate: none. */
    @Override
    public Filter[] pushedFilters() {
        return new Filter[0];
    }

    @Override
    public void pruneColumns(StructType wanted) {
        // Record batches without a column would come to Spark without their number of rows.
        columns = wanted.isEmpty() ? new StructType(new StructField[] {columns.apply(0)}) : wanted;
    }

    @Override
    public Scan build() {
        String name = DefaultSource.IN_PYTHON;
        if (filters.length == 0) {
            return new Reading(new Once(source), columns, options);
        }
        PythonScanBuilder scan = new PythonScanBuilder(new Once(source), name, columns, options);
        scan.pushFilters(filters);
        return scan.build();
    }
}

/** A read without filters, as every stream has it. */
class Reading extends PythonScan {
    private final DefaultSource source;
    private final CaseInsensitiveStringMap options;

    Reading(DefaultSource source, StructType columns, CaseInsensitiveStringMap options) {
        super(source, DefaultSource.IN_PYTHON, columns, options, new Filter[0]);
        this.source = source;
        this.options = options;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        try {
            PythonStreamingSourceRunner runner =
                PythonMicroBatchStream.createPythonStreamingSourceRunner(
                    source, DefaultSource.IN_PYTHON, readSchema(), options);
            runner.init();
            return new Consuming(source, readSchema(), options, runner);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }
}

/** A stream that says what it reads, how far it is behind, and what is wrong in one line. */
class Consuming extends PythonMicroBatchStreamWithTriggerAvailableNow
        implements ReportsSourceMetrics {
    private final CaseInsensitiveStringMap options;
    private Offset behind;

    Consuming(DefaultSource source, StructType columns, CaseInsensitiveStringMap options,
            PythonStreamingSourceRunner runner) {
        super(source, DefaultSource.IN_PYTHON, columns, options, runner);
        this.options = options;
    }

    @Override
    public Offset initialOffset() {
        try {
            return super.initialOffset();
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        try {
            super.prepareForTriggerAvailableNow();
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        try {
            return super.latestOffset(start, limit);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public Offset reportLatestOffset() {
        try {
            behind = super.reportLatestOffset();
            return behind;
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        try {
            return super.planInputPartitions(start, end);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public void commit(Offset end) {
        try {
            super.commit(end);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    /** What the source has reported last, but for the parts that are about single queues. */
    @Override
    public Map<String, String> metrics(Optional<Offset> consumed) {
        Map<String, String> found = new TreeMap<String, String>();
        try {
            if (behind != null) {
                JsonNode all = new ObjectMapper().readTree(behind.json());
                Iterator names = all.fieldNames();
                while (names.hasNext()) {
                    String name = (String) names.next();
                    if (all.get(name).isValueNode() && !all.get(name).isNull()) {
                        found.put(name, all.get(name).asText());
                    }
                }
            }
        } catch (Throwable error) {
            found.clear();
        }
        return found;
    }

    /** As progress shows it. */
    @Override
    public String toString() {
        return "fsmq[" + options.get("queue") + " of " + options.get("root") + "]";
    }
}

/** A write whose errors on the driver are one line. */
class Writing implements WriteBuilder, SupportsTruncate {
    private final DefaultSource source;
    private final LogicalWriteInfo info;
    private boolean replaces = false;

    Writing(DefaultSource source, LogicalWriteInfo info) {
        this.source = source;
        this.info = info;
    }

    @Override
    public WriteBuilder truncate() {
        replaces = true;
        return this;
    }

    @Override
    public Write build() {
        return new Written(source, info, replaces);
    }
}

class Written extends PythonWrite {
    private final DefaultSource source;
    private final LogicalWriteInfo info;
    private final boolean replaces;

    Written(DefaultSource source, LogicalWriteInfo info, boolean replaces) {
        super(source, DefaultSource.IN_PYTHON, info, replaces);
        this.source = source;
        this.info = info;
        this.replaces = replaces;
    }

    @Override
    public BatchWrite toBatch() {
        return new Job(source, info, replaces);
    }
}

class Job extends PythonBatchWrite {
    Job(DefaultSource source, LogicalWriteInfo info, boolean replaces) {
        super(source, DefaultSource.IN_PYTHON, info, replaces);
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
        try {
            return super.createBatchWriterFactory(physical);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
        try {
            super.commit(messages);
        } catch (Throwable error) {
            throw Fault.shortened(error);
        }
    }
}

/** The source for one query, because Spark keeps with it what was planned for that. */
class Once extends DefaultSource {
    private final DefaultSource source;

    Once(DefaultSource source) {
        setShortName(IN_PYTHON);
        this.source = source;
    }

    /** One process of Python less: the source itself knows nothing of queries. */
    @Override
    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
            String name, CaseInsensitiveStringMap options, Option<StructType> schema) {
        return source.getOrCreateDataSourceInPython(name, options, schema);
    }
}
