package probe;

import java.util.List;
import java.util.Objects;

/** The user classes whose names and fields stand in the Flink fixtures; a POJO is restored only with its class at hand. */
public final class Tv {
    private Tv() {}

    public enum Color { RED, GREEN, BLUE, ŒUVRE }

    public static class Address {
        public String city;
        public Integer zip;
    }

    public static class Person {
        public String name;
        public int age;
        public Long score;
        public Color color;
        public List<String> tags;
        public Address home;
        public double[] xs;
    }

    /** A key: its hash code decides the key group. */
    public static class PKey {
        public int id;
        public String name;

        @Override
        public int hashCode() {
            return 31 * id + Objects.hashCode(name);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof PKey that && that.id == id && Objects.equals(that.name, name);
        }
    }
}
