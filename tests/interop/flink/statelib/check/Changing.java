package statelib.check;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Changes state of every kind in every way that a log tells apart, and says what each key's state is by then. */
final class Changing extends KeyedProcessFunction<Long, Long, Long> {
    /** Typed lines by key, from plain collections beside the state, never read back from it. */
    static final Map<Long, List<String>> TRUTH = new ConcurrentHashMap<>();

    private static final long serialVersionUID = 1L;
    private static final long FAR_MS = 5_000_000_000_000L;
    private final int maxParallelism;
    private transient ValueState<String> value;
    private transient ListState<Integer> list;
    private transient MapState<String, Double> map;
    private transient ReducingState<Long> sum;
    private transient Map<Long, Held> held;

    Changing(int maxParallelism) {
        this.maxParallelism = maxParallelism;
    }

    /** What one key's state should be. */
    private static final class Held {
        String value;
        Long sum;
        final List<Integer> list = new ArrayList<>();
        final TreeMap<String, Double> map = new TreeMap<>();
        final TreeSet<Long> timers = new TreeSet<>();
    }

    @Override
    public void open(OpenContext context) {
        value = getRuntimeContext().getState(new ValueStateDescriptor<>("value", Types.STRING));
        list = getRuntimeContext().getListState(new ListStateDescriptor<>("list", Types.INT));
        map = getRuntimeContext().getMapState(new MapStateDescriptor<>("map", Types.STRING, Types.DOUBLE));
        sum = getRuntimeContext().getReducingState(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
        held = new HashMap<>();
    }

    @Override
    public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
        Held mine = held.computeIfAbsent(context.getCurrentKey(), key -> new Held());
        Random random = new Random(number * 31 + 5);
        single(number, mine, random);
        list(mine, random);
        map(number, mine, random);
        if (random.nextInt(3) == 0 && !mine.timers.isEmpty()) {
            context.timerService().deleteEventTimeTimer(mine.timers.first());
            mine.timers.pollFirst();
        } else {
            long at = FAR_MS + random.nextInt(50);
            context.timerService().registerEventTimeTimer(at);
            mine.timers.add(at);
        }
        TRUTH.put(context.getCurrentKey(), lines(context.getCurrentKey(), mine));
    }

    private void single(long number, Held mine, Random random) throws Exception {
        mine.value = random.nextInt(5) == 0 ? null : "v" + number + "é\0😀".repeat(random.nextInt(3));
        value.update(mine.value);
        if (random.nextInt(7) == 0) {
            sum.clear();
            mine.sum = null;
        } else {
            sum.add(number);
            mine.sum = (mine.sum == null ? 0 : mine.sum) + number;
        }
    }

    private void list(Held mine, Random random) throws Exception {
        List<Integer> some = List.of(random.nextInt(), 0x2c2c2c2c, random.nextInt());
        switch (random.nextInt(6)) {
            case 0 -> {
                list.clear();
                mine.list.clear();
            }
            case 1 -> {
                list.update(some);
                mine.list.clear();
                mine.list.addAll(some);
            }
            case 2 -> {
                list.addAll(some);
                mine.list.addAll(some);
            }
            default -> {
                list.add(some.get(0));
                mine.list.add(some.get(0));
            }
        }
    }

    private void map(double number, Held mine, Random random) throws Exception {
        String key = "k" + random.nextInt(4);
        switch (random.nextInt(7)) {
            case 0 -> {
                map.clear();
                mine.map.clear();
            }
            case 1 -> {
                Map<String, Double> some = Map.of("a", -0.0, key, number);
                map.putAll(some);
                mine.map.putAll(some);
            }
            case 2 -> {
                map.remove(key);
                mine.map.remove(key);
            }
            case 3 -> {
                for (Map.Entry<String, Double> entry : map.entries()) {
                    entry.setValue(entry.getValue() + 1);
                }
                mine.map.replaceAll((any, old) -> old + 1);
            }
            default -> {
                map.put(key, number);
                mine.map.put(key, number);
            }
        }
    }

    private List<String> lines(long key, Held mine) {
        List<String> lines = new ArrayList<>();
        if (mine.value != null) {
            lines.add(line("value", "value", key, null, null, mine.value));
        }
        for (int i = 0; i < mine.list.size(); i++) {
            lines.add(line("list", "list", key, i, null, mine.list.get(i)));
        }
        mine.map.forEach((userKey, one) -> lines.add(line("map", "map", key, null, userKey, one)));
        if (mine.sum != null) {
            lines.add(line("sum", "reducing", key, null, null, mine.sum));
        }
        mine.timers.forEach(at -> lines.add(start("user-timers", "eventTimer", key).put("ts", at).toString()));
        return lines;
    }

    private ObjectNode start(String state, String kind, long key) {
        ObjectNode line = Typed.object().put("op", "keyed").put("state", state).put("kind", kind);
        line.set("key", Typed.value(key, List.of()));
        return line.put("kg", KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism)).putNull("ns");
    }

    private String line(String state, String kind, long key, Integer index, String userKey, Object one) {
        ObjectNode line = start(state, kind, key);
        if (index != null) {
            line.put("idx", index);
        }
        if (userKey != null) {
            line.set("uk", Typed.value(userKey, List.of()));
        }
        line.set("value", Typed.value(one, List.of()));
        return line.toString();
    }
}
