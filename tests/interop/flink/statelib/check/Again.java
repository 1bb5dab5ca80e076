package statelib.check;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * Restores a snapshot and lets Flink write the same state anew, in whatever form and with whatever settings.
 *
 * <p>Prints one JSON object an order: its id with the directories that were written, or with Flink's own error.
 */
public final class Again {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final long PATIENCE_S = 120;

    private Again() {}

    /** {@code forms}, one after the other: CANONICAL and NATIVE are savepoints, any other word is a checkpoint. */
    record Order(Description.Case from, String target, List<String> forms, Map<String, String> settings) {}

    /** Argument: the orders. */
    public static void main(String[] arguments) throws Exception {
        for (Order order : MAPPER.readValue(Path.of(arguments[0]).toFile(), Order[].class)) {
            ObjectNode answer = Typed.object().put("id", order.from().id());
            Map<String, String> own = new HashMap<>(Map.of("state.backend.type", order.from().backend()));
            own.putAll(order.settings());
            Configuration settings = settings(order.target(), own);
            try (MiniCluster cluster = cluster(settings)) {
                run(cluster, order, settings, answer);
            } catch (Exception error) {
                answer.put("error", causes(error));
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    static String causes(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (; error != null; error = error.getCause()) {
            text.append(error).append(" <- ");
        }
        return text.toString();
    }

    static MiniCluster cluster(Configuration settings) throws Exception {
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(8).build());
        cluster.start();
        return cluster;
    }

    /** Of a job that writes below {@code target}. */
    static Configuration settings(String target, Map<String, String> own) {
        Map<String, String> all = new HashMap<>();
        all.put("rest.bind-port", "0");
        all.put("rest.address", "localhost");
        all.put("taskmanager.memory.network.min", "64m");
        all.put("taskmanager.memory.network.max", "64m");
        all.put("taskmanager.memory.managed.size", "256m");
        all.put("io.tmp.dirs", Path.of(target, "tmp").toString());
        all.put("execution.checkpointing.storage", "filesystem");
        all.put("execution.checkpointing.dir", Path.of(target, "checkpoints").toUri().toString());
        all.put("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        all.put("execution.checkpointing.interval", "1h");
        all.put("execution.checkpointing.num-retained", "10");
        all.put("restart-strategy.type", "none");
        all.put("pipeline.generic-types", "true");
        all.putAll(own);
        return Configuration.fromMap(all);
    }

    private static void run(MiniCluster cluster, Order order, Configuration settings, ObjectNode answer)
            throws Exception {
        JobGraph graph = job(order.from(), settings);
        JobID job = graph.getJobID();
        cluster.submitJob(graph).get();
        if (!runs(cluster, job)) {
            answer.put("error", Check.causes(cluster.requestJobResult(job).get()));
            return;
        }
        for (String form : order.forms()) {
            boolean savepoint = form.equals("CANONICAL") || form.equals("NATIVE");
            answer.withArray("written").add(savepoint
                    ? cluster.triggerSavepoint(job, order.target(), false, SavepointFormatType.valueOf(form))
                            .get(PATIENCE_S, TimeUnit.SECONDS)
                    : cluster.triggerCheckpoint(job).get(PATIENCE_S, TimeUnit.SECONDS));
        }
        cluster.cancelJob(job).get();
        cluster.requestJobResult(job).get();
    }

    /** Waits until all of its tasks do; false if it ended before. */
    static boolean runs(MiniCluster cluster, JobID job) throws Exception {
        for (long waited = 0; cluster.getJobStatus(job).get() != JobStatus.RUNNING
                || !cluster.getExecutionGraph(job).get().getAllExecutionVertices().iterator().hasNext()
                || !running(cluster, job); waited++) {
            if (cluster.getJobStatus(job).get().isGloballyTerminalState() || waited > PATIENCE_S * 10) {
                return false;
            }
            Thread.sleep(100);
        }
        return true;
    }

    private static boolean running(MiniCluster cluster, JobID job) throws Exception {
        for (var vertex : cluster.getExecutionGraph(job).get().getAllExecutionVertices()) {
            if (vertex.getExecutionState() != org.apache.flink.runtime.execution.ExecutionState.RUNNING) {
                return false;
            }
        }
        return true;
    }

    private static JobGraph job(Description.Case one, Configuration settings) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(one.parallelism());
        if (one.maxParallelism() > 0) {
            environment.setMaxParallelism(one.maxParallelism());
        }
        DataStream<Long> nothing = environment.fromSequence(1, Long.MAX_VALUE).uid("lasting-source")
                .filter(any -> {
                    Thread.sleep(1);
                    return false;
                }).uid("lasting-nothing");
        for (Description.Operator operator : one.operators()) {
            DataStream<Long> input = nothing.rebalance();
            if (operator.key() != null) {
                input = nothing.keyBy((KeySelector<Long, Object>) any -> null, TypeText.information(operator.key()));
            }
            input.transform(operator.uid(), Types.LONG, new Dump(operator)).uid(operator.uid())
                    .sinkTo(new DiscardingSink<>()).uid("check-sink-" + operator.uid());
        }
        return Check.graph(environment, one.snapshot(), one.allowNonRestoredState());
    }
}
