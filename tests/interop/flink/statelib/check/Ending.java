package statelib.check;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/** A job that is stopped with a savepoint: windows that are open by then, and timers in both domains that are far away. */
final class Ending {
    private static final int KEYS = 7;
    private static final long START_MS = 1_700_000_000_000L / 3_600_000L * 3_600_000L;
    private static final long FAR_MS = 9_000_000_000_000L;

    private Ending() {}

    static void over(DataStream<Long> numbers) {
        DataStream<Long> timed = numbers.assignTimestampsAndWatermarks(
                WatermarkStrategy.<Long>forMonotonousTimestamps()
                        .withTimestampAssigner((number, any) -> START_MS + number)).setParallelism(1).uid("moments");
        keyed(timed).window(TumblingEventTimeWindows.of(Duration.ofHours(1))).allowedLateness(Duration.ofHours(6))
                .reduce(Long::sum).uid("sums").sinkTo(new DiscardingSink<>());
        keyed(timed).process(new Waking()).uid("waking").sinkTo(new DiscardingSink<>());
    }

    private static KeyedStream<Long, Long> keyed(DataStream<Long> timed) {
        return timed.keyBy(number -> number % KEYS, Types.LONG);
    }

    /** Counts the timers that fired. */
    private static final class Waking extends KeyedProcessFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> fired;

        @Override
        public void open(OpenContext context) {
            fired = getRuntimeContext().getState(new ValueStateDescriptor<>("fired", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) {
            context.timerService().registerEventTimeTimer(FAR_MS + number);
            context.timerService().registerProcessingTimeTimer(FAR_MS + number);
        }

        @Override
        public void onTimer(long at, OnTimerContext context, Collector<Long> out) throws Exception {
            fired.update((fired.value() == null ? 0 : fired.value()) + 1);
        }
    }
}
