package statelib.check;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Runs a job that changes its state, and takes a checkpoint after so and so many changes, with whatever settings.
 *
 * <p>Writes truth-1.jsonl, truth-2.jsonl, ... beside the checkpoints, which have lines of the job {@code changing}; of the
 * job {@code sessions} a canonical savepoint follows. Prints one JSON object with the directories.
 */
public final class Logged {
    private static final int MAX_PARALLELISM = 128;
    private static final int KEYS = 60;
    private static final String SESSIONS = "sessions";
    private static final long PATIENCE_S = 120;
    private static final AtomicLong WANTED = new AtomicLong();
    private static final AtomicLong SENT = new AtomicLong();

    private Logged() {}

    /** {@code job}: changing, sessions or ending; {@code after}: numbers of changes; {@code pausesMs}: behind each of them,
     * so that the backend may do what it does by itself; {@code stop}: suspend or drain, with a savepoint; null: cancel. */
    record Order(String job, String target, Map<String, String> settings, List<Long> after, List<Long> pausesMs,
            String stop) {}

    /** Argument: the order. */
    public static void main(String[] arguments) throws Exception {
        Order order = new ObjectMapper().readValue(Path.of(arguments[0]).toFile(), Order.class);
        Configuration settings = Again.settings(order.target(), order.settings());
        ObjectNode answer = Typed.object();
        try (MiniCluster cluster = Again.cluster(settings)) {
            run(cluster, order, settings, answer);
        } catch (Exception error) {
            answer.put("error", Again.causes(error));
        }
        System.out.println(answer);
        System.exit(0);
    }

    private static void run(MiniCluster cluster, Order order, Configuration settings, ObjectNode answer)
            throws Exception {
        JobGraph graph = job(order.job(), settings);
        cluster.submitJob(graph).get();
        if (!Again.runs(cluster, graph.getJobID())) {
            throw new IllegalStateException(Check.causes(cluster.requestJobResult(graph.getJobID()).get()));
        }
        int number = 0;
        for (long after : order.after()) {
            WANTED.set(after);
            for (long waited = 0; SENT.get() < after; waited++) {
                if (waited > PATIENCE_S * 10 || cluster.getJobStatus(graph.getJobID()).get().isGloballyTerminalState()) {
                    throw new IllegalStateException(SENT.get() + " of " + after + " changes were made");
                }
                Thread.sleep(100);
            }
            Thread.sleep(order.pausesMs().get(number));
            // A checkpoint's barrier comes behind all changes: what they made of the state is then said, too.
            answer.withArray("written").add(
                    cluster.triggerCheckpoint(graph.getJobID()).get(PATIENCE_S, TimeUnit.SECONDS));
            Files.write(Path.of(order.target(), "truth-" + ++number + ".jsonl"),
                    Changing.TRUTH.values().stream().flatMap(List::stream).sorted().toList());
        }
        if (order.job().equals(SESSIONS)) {
            // No record comes between: what Flink makes of the log's last state by itself.
            answer.withArray("written").add(cluster.triggerSavepoint(
                    graph.getJobID(), order.target(), false, SavepointFormatType.CANONICAL)
                            .get(PATIENCE_S, TimeUnit.SECONDS));
        }
        if (order.stop() == null) {
            cluster.cancelJob(graph.getJobID()).get();
        } else {
            answer.withArray("written").add(cluster.stopWithSavepoint(
                    graph.getJobID(), order.target(), order.stop().equals("drain"), SavepointFormatType.CANONICAL)
                            .get(PATIENCE_S, TimeUnit.SECONDS));
        }
        cluster.requestJobResult(graph.getJobID()).get();
    }

    private static JobGraph job(String name, Configuration settings) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);
        environment.setMaxParallelism(MAX_PARALLELISM);
        DataStream<Long> numbers = environment.fromSequence(1, Long.MAX_VALUE).setParallelism(1).uid("source")
                .flatMap((Long any, Collector<Long> out) -> {
                    if (SENT.get() >= WANTED.get()) {
                        Thread.sleep(1);
                        return;
                    }
                    out.collect(SENT.get());
                    SENT.incrementAndGet();
                }).returns(Types.LONG).setParallelism(1).uid("gate");
        if (name.equals(SESSIONS)) {
            Sessions.over(numbers);
        } else if (name.equals("ending")) {
            Ending.over(numbers);
        } else {
            numbers.keyBy(number -> number * 7 % KEYS, Types.LONG).process(new Changing(MAX_PARALLELISM)).uid("keyed")
                    .sinkTo(new DiscardingSink<>()).uid("sink");
        }
        return environment.getStreamGraph().getJobGraph();
    }
}
