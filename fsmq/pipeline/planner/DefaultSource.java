// The source fsmq as Spark's planner sees it: it reads the columns that a query uses, and no
// others, and each query has its filters for itself.
//
// Spark 4.3 does neither for a source in Python, although it does both for one in Java. So this is
// one: it stands before Spark's own class for sources in Python and leaves all work to that.
//
// Compiled when a session is made, by the compiler that Spark brings for its own code; that one
// knows no lambdas, and of type arguments only what is written out.

package fsmq;

import java.util.Map;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

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
        return new Messages(this, schema);
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
        PythonScanBuilder scan = new PythonScanBuilder(new Once(source), name, columns, options);
        if (filters.length > 0) {
            scan.pushFilters(filters);
        }
        return scan.build();
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
