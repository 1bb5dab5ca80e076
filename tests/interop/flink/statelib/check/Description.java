package statelib.check;

import java.io.Serializable;
import java.util.List;

/** What to restore and how to see it: the JSON that the tests hand over, member for member. */
final class Description {
    private Description() {}

    /** One restore. {@code maxParallelism} 0: the snapshot's own. {@code out}: file for the lines. */
    record Case(
            String id, String snapshot, String backend, int parallelism, int maxParallelism, String out,
            boolean allowNonRestoredState, List<Operator> operators) {}

    /** {@code key} null: no keyed state. Types are written as statelib writes them. */
    record Operator(String uid, String key, List<State> states, List<Timers> timers) implements Serializable {}

    /** {@code kind}: value, list, map, reducing, aggregating, opList, opUnion, broadcast. */
    record State(String name, String kind, String type, String userKey, String namespace) implements Serializable {}

    record Timers(String service, String namespace) implements Serializable {}
}
