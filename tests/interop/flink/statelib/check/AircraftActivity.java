package statelib.check;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.types.Row;

/** The pipeline {@code aircraft_activity} as a Flink job: goes on counting where the restored state stands. */
final class AircraftActivity extends Dump implements BoundedOneInput {
    /** The flights that are still to come; elements of the stream are indices of it. */
    static final List<Flight> FLIGHTS = new ArrayList<>();

    private static final long serialVersionUID = 1L;
    private static final int SEQUENTIAL = 1;

    record Flight(
            String tailnum, String dest, long number, long distance, Double depDelay, Double arrDelay, Instant hour) {}

    private final String rowType;
    private transient ValueState<Row> activity;
    private transient MapState<String, Long> flightsPerDest;

    private AircraftActivity(Description.Operator operator) {
        super(operator);
        this.rowType = operator.states().get(0).type();
    }

    /** One JSON object a line; {@code time_hour} in microseconds of the epoch. */
    static void read(Path file) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        for (String line : Files.readAllLines(file)) {
            JsonNode flight = mapper.readTree(line);
            long micros = flight.get("time_hour").asLong();
            FLIGHTS.add(new Flight(
                    flight.get("tailnum").asText(), flight.get("dest").asText(), flight.get("flight").asLong(),
                    flight.get("distance").asLong(), minutes(flight.get("dep_delay")), minutes(flight.get("arr_delay")),
                    Instant.ofEpochSecond(micros / 1_000_000, micros % 1_000_000 * 1000)));
        }
    }

    private static Double minutes(JsonNode value) {
        return value.isNull() ? null : value.asDouble();
    }

    static void attach(StreamExecutionEnvironment environment, Description.Operator operator) throws Exception {
        KeySelector<Long, Object> aircraft = index -> FLIGHTS.get(index.intValue()).tailnum();
        environment.fromSequence(0, FLIGHTS.size() - 1L).uid("check-source").setParallelism(SEQUENTIAL)
                .keyBy(aircraft, TypeText.information(operator.key()))
                .transform(operator.uid(), Types.LONG, new AircraftActivity(operator)).uid(operator.uid())
                .sinkTo(new DiscardingSink<>()).uid("check-sink");
    }

    /** Nothing is printed yet: what counts is the state at the end. */
    @Override
    public void open() throws Exception {
        activity = getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE,
                new ValueStateDescriptor<>("activity", TypeText.<Row>information(rowType)));
        flightsPerDest = getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE,
                new MapStateDescriptor<>("flights_per_dest", Types.STRING, Types.LONG));
    }

    @Override
    public void processElement(StreamRecord<Long> element) throws Exception {
        Flight flight = FLIGHTS.get(element.getValue().intValue());
        Row before = activity.value();
        Row now = before == null ? Row.of(0L, 0L, null, null, null, null, null) : Row.copy(before);
        now.setField(0, now.<Long>getFieldAs(0) + 1);
        now.setField(1, now.<Long>getFieldAs(1) + flight.distance());
        now.setField(2, sum(now.getFieldAs(2), flight.depDelay()));
        now.setField(3, sum(now.getFieldAs(3), flight.arrDelay()));
        Instant first = now.getFieldAs(4);
        now.setField(4, first == null || flight.hour().isBefore(first) ? flight.hour() : first);
        Instant last = now.getFieldAs(5);
        now.setField(5, last == null || flight.hour().isAfter(last) ? flight.hour() : last);
        now.setField(6, later(now.getFieldAs(6), flight));
        activity.update(now);
        Long landed = flightsPerDest.get(flight.dest());
        flightsPerDest.put(flight.dest(), landed == null ? 1 : landed + 1);
    }

    private static Double sum(Double total, Double minutes) {
        return total == null ? minutes : minutes == null ? total : Double.valueOf(total + minutes);
    }

    /** Destination, hour and number of the flight that comes last, by hour and then by number. */
    private static Row later(Row held, Flight flight) {
        if (held != null) {
            int order = flight.hour().compareTo(held.getFieldAs(1));
            if (order < 0 || order == 0 && flight.number() < held.<Long>getFieldAs(2)) {
                return held;
            }
        }
        return Row.of(flight.dest(), flight.hour(), flight.number());
    }

    @Override
    public void endInput() throws Exception {
        printKeyed();
    }
}
