package statelib.check;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.AppendingState;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;

/** Takes the place of the operator that wrote the state, registers all of it, and prints whatever Flink restored. */
class Dump extends AbstractStreamOperator<Long>
        implements OneInputStreamOperator<Long, Long>, Triggerable<Object, Object> {
    /** Lines of the job that runs now; the cluster lives in this process. */
    static final Queue<String> LINES = new ConcurrentLinkedQueue<>();

    private static final long serialVersionUID = 1L;
    private final Description.Operator operator;

    Dump(Description.Operator operator) {
        this.operator = operator;
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        for (Description.State state : operator.states()) {
            if (state.kind().equals("broadcast")) {
                broadcast(state, context.getOperatorStateStore());
            } else if (state.kind().startsWith("op")) {
                elements(state, context.getOperatorStateStore());
            }
        }
    }

    private boolean first() {
        return getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0;
    }

    private void broadcast(Description.State state, OperatorStateStore store) throws Exception {
        BroadcastState<Object, Object> restored = store.getBroadcastState(
                new MapStateDescriptor<>(state.name(), serializer(state.userKey()), serializer(state.type())));
        if (first()) {
            for (Map.Entry<Object, Object> entry : restored.immutableEntries()) {
                ObjectNode line = line(state.name(), state.kind());
                line.set("uk", typed(entry.getKey(), state.userKey()));
                line.set("value", typed(entry.getValue(), state.type()));
                LINES.add(line.toString());
            }
        }
    }

    private void elements(Description.State state, OperatorStateStore store) throws Exception {
        boolean union = state.kind().equals("opUnion");
        ListStateDescriptor<Object> descriptor = new ListStateDescriptor<>(state.name(), serializer(state.type()));
        ListState<Object> restored = union ? store.getUnionListState(descriptor) : store.getListState(descriptor);
        if (!union || first()) {
            for (Object element : restored.get()) {
                ObjectNode line = line(state.name(), state.kind());
                line.set("value", typed(element, state.type()));
                LINES.add(line.toString());
            }
        }
    }

    @Override
    public void open() throws Exception {
        super.open();
        printKeyed();
    }

    /** Everything that the backend holds now. */
    final void printKeyed() throws Exception {
        if (operator.key() == null) {
            return;
        }
        for (Description.State state : operator.states()) {
            if (!state.kind().startsWith("op") && !state.kind().equals("broadcast")) {
                keyed(state);
            }
        }
        KeyedStateBackend<Object> backend = getKeyedStateBackend();
        for (Description.Timers timers : operator.timers()) {
            InternalTimerService<Object> service = getInternalTimerService(
                    timers.service(), TypeText.namespace(timers.namespace()), this);
            service.forEachEventTimeTimer((namespace, at) ->
                    timer(timers.service(), "eventTimer", backend.getCurrentKey(), namespace, at));
            service.forEachProcessingTimeTimer((namespace, at) ->
                    timer(timers.service(), "procTimer", backend.getCurrentKey(), namespace, at));
        }
    }

    private void timer(String service, String kind, Object key, Object namespace, long at) throws Exception {
        LINES.add(keyedLine(service, kind, key, namespace).put("ts", at).toString());
    }

    private void keyed(Description.State state) throws Exception {
        KeyedStateBackend<Object> backend = getKeyedStateBackend();
        TypeSerializer<Object> namespaces = TypeText.namespace(state.namespace());
        StateDescriptor<?, ?> descriptor = descriptor(state);
        backend.getOrCreateKeyedState(namespaces, descriptor);
        Set<List<Object>> held = new LinkedHashSet<>();
        try (Stream<Tuple2<Object, Object>> all = backend.getKeysAndNamespaces(state.name())) {
            all.forEach(pair -> held.add(List.of(pair.f0, pair.f1)));
        }
        for (List<Object> pair : held) {
            backend.setCurrentKey(pair.get(0));
            print(state, pair.get(0), pair.get(1), partition(backend, pair.get(1), namespaces, descriptor));
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static State partition(
            KeyedStateBackend<Object> backend, Object namespace, TypeSerializer<Object> namespaces,
            StateDescriptor<?, ?> descriptor) throws Exception {
        return backend.getPartitionedState(namespace, namespaces, (StateDescriptor) descriptor);
    }

    @SuppressWarnings("unchecked")
    private void print(Description.State state, Object key, Object namespace, State held) throws Exception {
        switch (state.kind()) {
            case "map" -> {
                for (Map.Entry<Object, Object> entry : ((MapState<Object, Object>) held).entries()) {
                    ObjectNode line = keyedLine(state.name(), state.kind(), key, namespace);
                    line.set("uk", typed(entry.getKey(), state.userKey()));
                    line.set("value", typed(entry.getValue(), state.type()));
                    LINES.add(line.toString());
                }
            }
            case "list" -> {
                int index = 0;
                for (Object element : ((ListState<Object>) held).get()) {
                    ObjectNode line = keyedLine(state.name(), state.kind(), key, namespace);
                    if (!state.name().equals("merging-window-set")) {
                        line.put("idx", index++);
                    }
                    line.set("value", typed(element, state.type()));
                    LINES.add(line.toString());
                }
            }
            default -> {
                Object value = held instanceof ValueState
                        ? ((ValueState<Object>) held).value() : ((AppendingState<Object, Object>) held).get();
                if (value != null) {
                    ObjectNode line = keyedLine(state.name(), state.kind(), key, namespace);
                    line.set("value", typed(value, state.type()));
                    LINES.add(line.toString());
                }
            }
        }
    }

    private StateDescriptor<?, ?> descriptor(Description.State state) throws Exception {
        TypeSerializer<Object> type = serializer(state.type());
        return switch (state.kind()) {
            case "value" -> new ValueStateDescriptor<>(state.name(), type);
            case "list" -> new ListStateDescriptor<>(state.name(), type);
            case "map" -> new MapStateDescriptor<>(state.name(), serializer(state.userKey()), type);
            case "reducing" -> new ReducingStateDescriptor<>(state.name(), (a, b) -> b, type);
            case "aggregating" -> new AggregatingStateDescriptor<>(state.name(), new Accumulator(), type);
            default -> throw new IllegalArgumentException("kind " + state.kind());
        };
    }

    /** Shows the accumulator itself as the result. */
    private static final class Accumulator implements AggregateFunction<Object, Object, Object> {
        private static final long serialVersionUID = 1L;

        @Override
        public Object createAccumulator() {
            return null;
        }

        @Override
        public Object add(Object value, Object accumulator) {
            return value;
        }

        @Override
        public Object getResult(Object accumulator) {
            return accumulator;
        }

        @Override
        public Object merge(Object a, Object b) {
            return a;
        }
    }

    private TypeSerializer<Object> serializer(String text) throws Exception {
        return TypeText.serializer(text, getExecutionConfig());
    }

    private JsonNode typed(Object value, String text) throws Exception {
        return Typed.value(value, text.startsWith("rowdata<") ? logical(text) : List.of());
    }

    private static List<LogicalType> logical(String text) throws Exception {
        RowType row = ((InternalTypeInfo<?>) (Object) TypeText.information(text)).toRowType();
        return new ArrayList<>(row.getChildren());
    }

    private ObjectNode line(String state, String kind) {
        return Typed.object().put("op", operator.uid()).put("state", state).put("kind", kind);
    }

    private ObjectNode keyedLine(String state, String kind, Object key, Object namespace) throws Exception {
        int groups = getRuntimeContext().getTaskInfo().getMaxNumberOfParallelSubtasks();
        ObjectNode line = line(state, kind);
        line.set("key", typed(key, operator.key()));
        line.put("kg", KeyGroupRangeAssignment.assignToKeyGroup(key, groups));
        line.set("ns", Typed.namespace(namespace));
        return line;
    }

    @Override
    public void processElement(StreamRecord<Long> element) throws Exception {}

    @Override
    public void onEventTime(InternalTimer<Object, Object> timer) {}

    @Override
    public void onProcessingTime(InternalTimer<Object, Object> timer) {}
}
