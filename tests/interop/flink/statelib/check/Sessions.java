package statelib.check;

import java.util.Random;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.WindowedStream;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Session windows that merge as numbers come, and never fire: one keeps the numbers, one their sum, one their count. */
final class Sessions {
    private static final int KEYS = 5;
    private static final int SECONDS = 1500;
    private static final long START_MS = 1_700_000_000_000L;

    private Sessions() {}

    static void over(DataStream<Long> numbers) {
        DataStream<Long> timed = numbers.assignTimestampsAndWatermarks(WatermarkStrategy.<Long>noWatermarks()
                .withTimestampAssigner((number, any) -> moment(number))).setParallelism(1).uid("moments");
        windows(timed).process(new Nothing()).returns(Types.LONG).uid("list").sinkTo(new DiscardingSink<>());
        windows(timed).reduce(Long::sum).uid("reduce").sinkTo(new DiscardingSink<>());
        windows(timed).aggregate(new Count()).returns(Types.LONG).uid("aggregate").sinkTo(new DiscardingSink<>());
    }

    static long moment(long number) {
        return START_MS + new Random(number * 7 + 3).nextInt(SECONDS) * 1000L;
    }

    private static WindowedStream<Long, Long, TimeWindow> windows(DataStream<Long> timed) {
        return timed.keyBy(number -> number % KEYS, Types.LONG)
                .window(EventTimeSessionWindows.withGap(java.time.Duration.ofSeconds(40)));
    }

    private static final class Nothing extends ProcessWindowFunction<Long, Long, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long key, Context context, Iterable<Long> elements, Collector<Long> out) {}
    }

    private static final class Count implements AggregateFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long number, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }
}
