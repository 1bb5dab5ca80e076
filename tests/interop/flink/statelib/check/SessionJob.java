package statelib.check;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * Runs jobs with session windows on numbers and watermarks in a given order, from the start or from a savepoint, and
 * takes a savepoint after the last of them.
 *
 * <p>Prints one JSON object an order: the savepoint, the windows that fired and the numbers that were late; or Flink's
 * own error.
 */
public final class SessionJob {
    private static final int KEYS = 7;
    private static final int MAX_PARALLELISM = 128;
    private static final long PATIENCE_S = 120;
    private static final OutputTag<Long> LATE = new OutputTag<>("late", Types.LONG);
    private static final AtomicInteger SENT = new AtomicInteger();
    private static final List<String> LINES = Collections.synchronizedList(new ArrayList<>());
    private static List<Element> elements = List.of();

    private SessionJob() {}

    /** A number with its time, or a watermark: then there is no number. */
    record Element(Long n, long t) {}

    /** {@code kind}: reducing, aggregating or list; {@code snapshot} null: from the start. */
    record Order(String kind, String uid, long gapMs, long latenessMs, String backend, int parallelism, String snapshot,
            String target, List<Element> elements) {}

    /** Argument: the orders. */
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        for (Order order : mapper.readValue(Path.of(arguments[0]).toFile(), Order[].class)) {
            ObjectNode answer = Typed.object();
            Configuration settings = Again.settings(order.target(), Map.of("state.backend.type", order.backend()));
            SENT.set(0);
            LINES.clear();
            elements = order.elements();
            try (MiniCluster cluster = Again.cluster(settings)) {
                answer.put("savepoint", run(cluster, order, settings));
                LINES.stream().sorted().forEach(answer.putArray("lines")::add);
            } catch (Exception error) {
                answer.put("error", Again.causes(error));
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    private static String run(MiniCluster cluster, Order order, Configuration settings) throws Exception {
        JobGraph graph = job(order, settings);
        cluster.submitJob(graph).get();
        if (!Again.runs(cluster, graph.getJobID())) {
            throw new IllegalStateException(Check.causes(cluster.requestJobResult(graph.getJobID()).get()));
        }
        for (long waited = 0; SENT.get() < elements.size(); waited++) {
            if (waited > PATIENCE_S * 10 || cluster.getJobStatus(graph.getJobID()).get().isGloballyTerminalState()) {
                throw new IllegalStateException(SENT.get() + " of " + elements.size() + " elements were sent");
            }
            Thread.sleep(100);
        }
        // The barrier comes behind all elements.
        String savepoint = cluster.triggerSavepoint(
                graph.getJobID(), order.target(), false, SavepointFormatType.CANONICAL)
                        .get(PATIENCE_S, TimeUnit.SECONDS);
        cluster.cancelJob(graph.getJobID()).get();
        cluster.requestJobResult(graph.getJobID()).get();
        return savepoint;
    }

    private static JobGraph job(Order order, Configuration settings) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(order.parallelism());
        environment.setMaxParallelism(MAX_PARALLELISM);
        DataStream<Long> numbers = environment.fromSequence(1, Long.MAX_VALUE).setParallelism(1).uid("source")
                .flatMap((Long any, Collector<Long> out) -> {
                    if (SENT.get() >= elements.size()) {
                        Thread.sleep(1);
                        return;
                    }
                    out.collect((long) SENT.get());
                    SENT.incrementAndGet();
                }).returns(Types.LONG).setParallelism(1).uid("gate")
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Long>forGenerator(any -> new Marks())
                        .withTimestampAssigner((index, any) -> element(index).t())).setParallelism(1).uid("moments")
                .filter(index -> element(index).n() != null).setParallelism(1).uid("numbers")
                .map(index -> element(index).n()).returns(Types.LONG).setParallelism(1).uid("values");
        SingleOutputStreamOperator<Long> fired = fired(order, numbers
                .keyBy(number -> "é" + Math.floorMod(number, KEYS), Types.STRING)
                .window(EventTimeSessionWindows.withGap(Duration.ofMillis(order.gapMs())))
                .allowedLateness(Duration.ofMillis(order.latenessMs())).sideOutputLateData(LATE)).uid(order.uid());
        fired.sinkTo(new DiscardingSink<>()).uid("sink");
        fired.getSideOutput(LATE).map(number -> {
            LINES.add("late " + number);
            return number;
        }).returns(Types.LONG).uid("late").sinkTo(new DiscardingSink<>()).uid("late-sink");
        JobGraph graph = environment.getStreamGraph().getJobGraph();
        if (order.snapshot() != null) {
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(order.snapshot(), false));
        }
        return graph;
    }

    private static Element element(long index) {
        return elements.get((int) index);
    }

    private static SingleOutputStreamOperator<Long> fired(
            Order order, WindowedStream<Long, String, TimeWindow> windows) {
        return switch (order.kind()) {
            case "reducing" -> windows.reduce(Long::sum, new Fired<Long>(), Types.LONG);
            case "list" -> windows.process(new Fired<Long>(), Types.LONG);
            case "aggregating" -> windows.aggregate(
                    new Mean(), new Fired<Row>(), Types.ROW(Types.DOUBLE, Types.LONG),
                    Types.ROW(Types.DOUBLE, Types.LONG), Types.LONG);
            default -> throw new IllegalArgumentException(order.kind());
        };
    }

    /** Emits the watermark that an element is. */
    private static final class Marks implements WatermarkGenerator<Long> {
        @Override
        public void onEvent(Long index, long at, WatermarkOutput output) {
            if (element(index).n() == null) {
                output.emitWatermark(new Watermark(at));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    /** Notes the window, its contents and the watermark at which it fired. */
    private static final class Fired<T> extends ProcessWindowFunction<T, Long, String, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(String key, Context context, Iterable<T> contents, Collector<Long> out) {
            List<String> values = new ArrayList<>();
            contents.forEach(value -> values.add(String.valueOf(value)));
            Collections.sort(values);
            LINES.add(key + " " + context.window() + " " + values + " at " + context.currentWatermark());
        }
    }

    /** Sum and count, in statelib's form of an average. */
    private static final class Mean implements AggregateFunction<Long, Row, Row> {
        private static final long serialVersionUID = 1L;

        @Override
        public Row createAccumulator() {
            return Row.of(0.0, 0L);
        }

        @Override
        public Row add(Long number, Row mean) {
            return merge(mean, Row.of((double) number, 1L));
        }

        @Override
        public Row getResult(Row mean) {
            return mean;
        }

        @Override
        public Row merge(Row one, Row other) {
            return Row.of(one.<Double>getFieldAs(0) + other.<Double>getFieldAs(0),
                    one.<Long>getFieldAs(1) + other.<Long>getFieldAs(1));
        }
    }
}
