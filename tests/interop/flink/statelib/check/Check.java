package statelib.check;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.api.common.typeinfo.Types;

/**
 * Restores the snapshots of a file of cases, one after the other, in one cluster of a real Flink.
 *
 * <p>Prints one JSON object a case: its id with the number of lines written, or with Flink's own error.
 */
public final class Check {
    private static final int SLOTS = 8;
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Check() {}

    /** Arguments: the cases, a scratch directory and, to let a job go on from the state, a file of flights. */
    public static void main(String[] arguments) throws Exception {
        Description.Case[] cases = MAPPER.readValue(Path.of(arguments[0]).toFile(), Description.Case[].class);
        if (arguments.length > 2) {
            AircraftActivity.read(Path.of(arguments[2]));
        }
        try (MiniCluster cluster = cluster(Path.of(arguments[1]))) {
            for (Description.Case one : cases) {
                System.out.println(run(cluster, one));
            }
        }
        System.exit(0);
    }

    static MiniCluster cluster(Path scratch) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("rest.bind-port", "0");
        settings.put("rest.address", "localhost");
        settings.put("taskmanager.memory.network.min", "64m");
        settings.put("taskmanager.memory.network.max", "64m");
        settings.put("taskmanager.memory.managed.size", "256m");
        settings.put("io.tmp.dirs", scratch.toString());
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(Configuration.fromMap(settings))
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(SLOTS)
                .build());
        cluster.start();
        return cluster;
    }

    private static ObjectNode run(MiniCluster cluster, Description.Case one) throws Exception {
        ObjectNode answer = Typed.object().put("id", one.id());
        Dump.LINES.clear();
        JobGraph graph = job(one);
        cluster.submitJob(graph).get();
        JobResult result = cluster.requestJobResult(graph.getJobID()).get();
        if (!result.isSuccess()) {
            return answer.put("error", causes(result));
        }
        List<String> lines = new ArrayList<>(Dump.LINES);
        Collections.sort(lines);
        Files.write(Path.of(one.out()), lines);
        return answer.put("lines", lines.size());
    }

    static String causes(JobResult result) {
        StringBuilder text = new StringBuilder();
        Throwable cause = result.getSerializedThrowable()
                .map(error -> error.deserializeError(Check.class.getClassLoader()))
                .orElse(null);
        for (; cause != null; cause = cause.getCause()) {
            text.append(cause).append(" <- ");
        }
        return text.toString();
    }

    private static JobGraph job(Description.Case one) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(settings(one.backend()));
        environment.setParallelism(one.parallelism());
        if (one.maxParallelism() > 0) {
            environment.setMaxParallelism(one.maxParallelism());
        }
        if (!AircraftActivity.FLIGHTS.isEmpty()) {
            AircraftActivity.attach(environment, one.operators().get(0));
            return graph(environment, one.snapshot(), one.allowNonRestoredState());
        }
        DataStream<Long> nothing = environment.fromSequence(1, 1).uid("check-source").filter(any -> false).uid("check-nothing");
        for (Description.Operator operator : one.operators()) {
            DataStream<Long> input = nothing.rebalance();
            if (operator.key() != null) {
                input = nothing.keyBy((KeySelector<Long, Object>) any -> null, TypeText.information(operator.key()));
            }
            input.transform(operator.uid(), Types.LONG, new Dump(operator)).uid(operator.uid())
                    .sinkTo(new DiscardingSink<>()).uid("check-sink-" + operator.uid());
        }
        return graph(environment, one.snapshot(), one.allowNonRestoredState());
    }

    static Configuration settings(String backend) {
        return Configuration.fromMap(Map.of(
                "state.backend.type", backend,
                "restart-strategy.type", "none",
                "pipeline.generic-types", "true"));
    }

    static JobGraph graph(StreamExecutionEnvironment environment, String snapshot, boolean allowNonRestoredState) {
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        graph.setJobID(new JobID());
        graph.setSavepointRestoreSettings(
                SavepointRestoreSettings.forPath(Path.of(snapshot).toUri().toString(), allowNonRestoredState));
        return graph;
    }
}
