package statelib.check;

import java.nio.file.Path;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.state.TestableKeyedStateBackend;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/**
 * Restores into a warm cluster whenever it is told to: a line of JSON in, a line of JSON out, until the end of input.
 *
 * <p>The job restores the keyed state of one operator and touches none of it. With {@code target} it then lasts until
 * Flink has written a canonical savepoint of its own there; the state of its endless source is no state of others'.
 */
public final class Timed {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final long PATIENCE_S = 300;
    private static final LongAdder ENTRIES = new LongAdder();
    private static volatile CountDownLatch restored = new CountDownLatch(0);

    private Timed() {}

    /** Argument: a scratch directory. */
    public static void main(String[] arguments) throws Exception {
        try (MiniCluster cluster = Check.cluster(Path.of(arguments[0])); Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                System.out.println(run(cluster, MAPPER.readTree(lines.nextLine())));
            }
        }
        System.exit(0);
    }

    private static ObjectNode run(MiniCluster cluster, JsonNode order) throws Exception {
        ENTRIES.reset();
        int parallelism = order.get("parallelism").asInt();
        restored = new CountDownLatch(parallelism);
        JobGraph graph = job(order, parallelism);
        ObjectNode answer = Typed.object();
        cluster.submitJob(graph).get();
        if (order.hasNonNull("target")) {
            return saved(cluster, graph.getJobID(), order.get("target").asText(), answer);
        }
        JobResult result = cluster.requestJobResult(graph.getJobID()).get();
        return result.isSuccess()
                ? answer.put("entries", ENTRIES.sum()) : answer.put("error", Check.causes(result));
    }

    private static ObjectNode saved(MiniCluster cluster, JobID job, String target, ObjectNode answer) throws Exception {
        if (!restored.await(PATIENCE_S, TimeUnit.SECONDS)) {
            return answer.put("error", "not restored within " + PATIENCE_S + " s");
        }
        awaitRunning(cluster, job);
        long began = System.nanoTime();
        answer.put("savepoint", cluster.triggerSavepoint(job, target, true, SavepointFormatType.CANONICAL)
                .get(PATIENCE_S, TimeUnit.SECONDS));
        answer.put("savepointMs", (System.nanoTime() - began) / 1_000_000);
        cluster.requestJobResult(job).get(PATIENCE_S, TimeUnit.SECONDS);
        return answer.put("entries", ENTRIES.sum());
    }

    /** A task that has opened its state may not be known as running yet, and no savepoint is taken before. */
    private static void awaitRunning(MiniCluster cluster, JobID job) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S); System.nanoTime() < end;
                Thread.sleep(20)) {
            boolean all = true;
            for (AccessExecutionVertex vertex : cluster.getExecutionGraph(job).get().getAllExecutionVertices()) {
                all &= vertex.getExecutionState() == ExecutionState.RUNNING;
            }
            if (all) {
                return;
            }
        }
    }

    private static JobGraph job(JsonNode order, int parallelism) throws Exception {
        Configuration settings = Check.settings(order.get("backend").asText());
        boolean lasts = order.hasNonNull("target");
        if (lasts) {
            settings.setString("execution.checkpointing.storage", "filesystem");
            settings.setString("execution.checkpointing.dir", Path.of(order.get("target").asText()).toUri().toString());
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(parallelism);
        environment.fromSequence(1, lasts ? Long.MAX_VALUE : 1).uid(lasts ? "lasting-source" : "check-source")
                .filter(any -> {
                    Thread.sleep(lasts ? 1 : 0);
                    return false;
                }).uid("check-nothing")
                .keyBy(any -> any, TypeText.information(order.get("key").asText()))
                .transform(order.get("uid").asText(), Types.LONG, new Counted()).uid(order.get("uid").asText())
                .sinkTo(new DiscardingSink<>()).uid("check-sink");
        return Check.graph(environment, order.get("snapshot").asText(), true);
    }

    /** How many entries each subtask holds is known without reading them (on the heap). */
    private static final class Counted extends AbstractStreamOperator<Long>
            implements OneInputStreamOperator<Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public void open() throws Exception {
            super.open();
            ENTRIES.add(((TestableKeyedStateBackend<?>) getKeyedStateBackend()).numKeyValueStateEntries());
            restored.countDown();
        }

        @Override
        public void processElement(StreamRecord<Long> element) {}
    }
}
