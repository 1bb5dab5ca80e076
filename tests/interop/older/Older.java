package statelib.check;

import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.SourceFunction;
import org.apache.flink.util.Collector;

/** Takes a checkpoint and a savepoint of a small job with a Flink of 1.12 to 1.16, and says what they hold. */
public final class Older {
    private static final int NUMBERS = 200;
    private static final int KEYS = 20;
    private static final int GROUPS = 128;
    private static final long FAR = 4102444800000L;
    private static final AtomicInteger DONE = new AtomicInteger();

    private Older() {}

    /** The numbers from 0 on, then nothing until the job ends. */
    public static final class Numbers implements SourceFunction<Long> {
        private volatile boolean running = true;

        @Override
        public void run(SourceContext<Long> context) throws Exception {
            for (long n = 0; n < NUMBERS; n++) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(n);
                }
            }
            while (running) {
                Thread.sleep(20);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    public static final class KeyOf implements KeySelector<Long, String> {
        @Override
        public String getKey(Long n) {
            return keyOf(n);
        }
    }

    public static final class Sum implements ReduceFunction<Long> {
        @Override
        public Long reduce(Long a, Long b) {
            return a + b;
        }
    }

    public static final class Keeping extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> last;

        @Override
        public void open(Configuration configuration) {
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override
        public void processElement(Long n, Context context, Collector<Long> out) throws Exception {
            last.update(n);
            ListState<Long> seen =
                    getRuntimeContext().getListState(new ListStateDescriptor<>("seen", Types.LONG));
            seen.add(n);
            MapState<String, Long> tens =
                    getRuntimeContext().getMapState(new MapStateDescriptor<>("tens", Types.STRING, Types.LONG));
            tens.put("ten " + n / 100, n);
            if (n % KEYS == 3) {
                getRuntimeContext()
                        .getReducingState(new ReducingStateDescriptor<>("sum of three", new Sum(), Types.LONG))
                        .add(n);
            }
            context.timerService().registerProcessingTimeTimer(FAR + n % KEYS);
            DONE.incrementAndGet();
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Long> out) {}
    }

    static String keyOf(long n) {
        return "key-" + n % KEYS;
    }

    public static void main(String[] arguments) throws Exception {
        Path target = Paths.get(arguments[0]);
        String backend = arguments[1];
        Configuration configuration = new Configuration();
        configuration.setString("state.backend", backend);
        configuration.setString("state.backend.incremental", "false");
        configuration.setString("state.backend.fs.memory-threshold", "0");
        configuration.setString("state.checkpoints.dir", target.resolve("checkpoints").toUri().toString());
        configuration.setString(
                "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("execution.checkpointing.interval", "500ms");
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        env.configure(configuration, Older.class.getClassLoader());
        env.setMaxParallelism(GROUPS);
        env.addSource(new Numbers())
                .uid("numbers")
                .keyBy(new KeyOf())
                .process(new Keeping())
                .uid("keyed")
                .addSink(new DiscardingSink<>())
                .uid("sink");
        JobClient job = env.executeAsync("older");
        while (DONE.get() < NUMBERS) {
            Thread.sleep(20);
        }
        Thread.sleep(2500);
        String savepoint = savepoint(job, target.toUri().toString());
        job.cancel().get();
        Thread.sleep(1000);
        Files.write(target.resolve("truth.jsonl"), truth());
        System.out.println(savepoint);
        System.exit(0);
    }

    /** Flink 1.15 asks for a format, earlier ones have one only. */
    @SuppressWarnings("unchecked")
    private static String savepoint(JobClient job, String target) throws Exception {
        for (Method method : JobClient.class.getMethods()) {
            if (method.getName().equals("triggerSavepoint")) {
                Object[] arguments = new Object[method.getParameterCount()];
                arguments[0] = target;
                if (arguments.length == 2) {
                    arguments[1] = method.getParameterTypes()[1].getField("CANONICAL").get(null);
                }
                return ((CompletableFuture<String>) method.invoke(job, arguments)).get();
            }
        }
        throw new IllegalStateException("no savepoints");
    }

    private static List<String> truth() {
        List<String> lines = new ArrayList<>();
        for (long key = 0; key < KEYS; key++) {
            lines.add(line("last", "value", key, "", number(NUMBERS - KEYS + key)));
            long sum = 0;
            for (int at = 0; at * KEYS < NUMBERS; at++) {
                long n = at * KEYS + key;
                lines.add(line("seen", "list", key, "\"idx\":" + at + ",", number(n)));
                sum += n;
            }
            for (int ten = 0; ten * 100 < NUMBERS; ten++) {
                String userKey = "\"uk\":{\"type\":\"string\",\"v\":\"ten " + ten + "\"},";
                lines.add(line("tens", "map", key, userKey, number(ten * 100 + 80 + key)));
            }
            if (key == 3) {
                lines.add(line("sum of three", "reducing", key, "", number(sum)));
            }
            lines.add(start("user-timers", "procTimer", key) + "\"ts\":" + (FAR + key) + "}");
        }
        Collections.sort(lines);
        return lines;
    }

    private static String number(long n) {
        return "{\"type\":\"long\",\"v\":" + n + "}";
    }

    private static String line(String state, String kind, long key, String place, String value) {
        return start(state, kind, key) + place + "\"value\":" + value + "}";
    }

    private static String start(String state, String kind, long key) {
        int group = KeyGroupRangeAssignment.assignToKeyGroup(keyOf(key), GROUPS);
        return "{\"op\":\"keyed\",\"state\":\"" + state + "\",\"kind\":\"" + kind
                + "\",\"key\":{\"type\":\"string\",\"v\":\"" + keyOf(key) + "\"},\"kg\":" + group + ",\"ns\":null,";
    }
}
