package statelib.check;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.Row;

/** Any value as typed JSON: lossless, and the same text for equal values. */
final class Typed {
    private static final JsonNodeFactory JSON = JsonNodeFactory.withExactBigDecimals(true);

    private Typed() {}

    static ObjectNode object() {
        return JSON.objectNode();
    }

    private static ObjectNode of(String type) {
        return object().put("type", type);
    }

    static JsonNode namespace(Object namespace) {
        return namespace instanceof VoidNamespace ? JSON.nullNode() : value(namespace, List.of());
    }

    /** {@code sql}: the logical types of a RowData's fields; it does not know them itself. */
    static JsonNode value(Object value, List<LogicalType> sql) {
        if (value == null) {
            return of("null");
        }
        if (value instanceof RowData row) {
            return rowData(row, sql);
        }
        if (value instanceof TtlValue<?> ttl) {
            ObjectNode node = of("ttl").put("lastAccess", ttl.getLastAccessTimestamp());
            node.set("v", value(ttl.getUserValue(), sql));
            return node;
        }
        JsonNode scalar = scalar(value);
        return scalar != null ? scalar : composite(value);
    }

    private static JsonNode scalar(Object value) {
        return switch (value.getClass().getSimpleName()) {
            case "Long" -> of("long").put("v", (Long) value);
            case "Integer" -> of("int").put("v", (Integer) value);
            case "Short" -> of("short").put("v", (Short) value);
            case "Byte" -> of("byte").put("v", ((Byte) value).intValue());
            case "Character" -> of("char").put("v", (int) (Character) value);
            case "Boolean" -> of("boolean").put("v", (Boolean) value);
            case "Double" -> of("double").put("v", value.toString())
                    .put("bits", "%016x".formatted(Double.doubleToRawLongBits((Double) value)));
            case "Float" -> of("float").put("v", value.toString())
                    .put("bits", "%08x".formatted(Float.floatToRawIntBits((Float) value)));
            case "String" -> of("string").put("v", (String) value);
            default -> temporal(value);
        };
    }

    private static JsonNode temporal(Object value) {
        if (value instanceof BigDecimal d) {
            return of("bigdecimal").put("unscaled", d.unscaledValue().toString()).put("scale", d.scale());
        }
        if (value instanceof DecimalData d) {
            return value(d.toBigDecimal(), List.of());
        }
        if (value instanceof BigInteger i) {
            return of("bigint").put("v", i.toString());
        }
        if (value instanceof Instant i) {
            return of("instant").put("sec", i.getEpochSecond()).put("nano", i.getNano());
        }
        if (value instanceof LocalDate d) {
            return of("localdate").put("v", d.toString());
        }
        if (value instanceof LocalTime t) {
            return of("localtime").put("nanoOfDay", t.toNanoOfDay());
        }
        if (value instanceof LocalDateTime t) {
            return of("localdatetime").put("date", t.toLocalDate().toString())
                    .put("nanoOfDay", t.toLocalTime().toNanoOfDay());
        }
        return null;
    }

    private static JsonNode composite(Object value) {
        if (value instanceof byte[] bytes) {
            return of("bytes").put("hex", HexFormat.of().formatHex(bytes));
        }
        if (value instanceof Enum<?> e) {
            return of("enum").put("v", e.name()).put("ordinal", e.ordinal());
        }
        if (value instanceof TimeWindow w) {
            return of("timewindow").put("start", w.getStart()).put("end", w.getEnd());
        }
        if (value instanceof GlobalWindow) {
            return of("globalwindow");
        }
        if (value.getClass().isArray()) {
            return array(value);
        }
        if (value instanceof List<?> list) {
            ObjectNode node = of("list");
            ArrayNode out = node.putArray("v");
            list.forEach(element -> out.add(value(element, List.of())));
            return node;
        }
        if (value instanceof Map<?, ?> map) {
            return map(map);
        }
        if (value instanceof Tuple tuple) {
            ObjectNode node = of("tuple" + tuple.getArity());
            ArrayNode out = node.putArray("v");
            for (int i = 0; i < tuple.getArity(); i++) {
                out.add(value(tuple.getField(i), List.of()));
            }
            return node;
        }
        if (value instanceof Row row) {
            ObjectNode node = of("row").put("kind", row.getKind().shortString());
            ArrayNode out = node.putArray("v");
            for (int i = 0; i < row.getArity(); i++) {
                out.add(value(row.getField(i), List.of()));
            }
            return node;
        }
        // Whatever has no public fields came through Kryo: only its text is known.
        return value.getClass().getFields().length == 0
                ? of("kryo:" + value.getClass().getName()).put("v", value.toString()) : pojo(value);
    }

    private static JsonNode array(Object value) {
        ObjectNode node = of(value.getClass().getSimpleName());
        ArrayNode out = node.putArray("v");
        for (int i = 0; i < Array.getLength(value); i++) {
            out.add(value(Array.get(value, i), List.of()));
        }
        return node;
    }

    /** Entries in the order of their text: a Java map has none of its own. */
    private static JsonNode map(Map<?, ?> map) {
        TreeMap<String, JsonNode> ordered = new TreeMap<>();
        map.forEach((key, value) -> {
            ArrayNode pair = JSON.arrayNode().add(value(key, List.of())).add(value(value, List.of()));
            ordered.put(pair.toString(), pair);
        });
        ObjectNode node = of("map");
        node.putArray("v").addAll(ordered.values());
        return node;
    }

    private static JsonNode rowData(RowData row, List<LogicalType> types) {
        ObjectNode node = of("rowdata").put("kind", row.getRowKind().shortString());
        ArrayNode out = node.putArray("v");
        for (int i = 0; i < row.getArity(); i++) {
            out.add(internal(RowData.createFieldGetter(types.get(i), i).getFieldOrNull(row), types.get(i)));
        }
        return node;
    }

    private static JsonNode internal(Object value, LogicalType type) {
        if (value instanceof StringData text) {
            return value(text.toString(), List.of());
        }
        if (value instanceof TimestampData timestamp) {
            return value(timestamp.toLocalDateTime(), List.of());
        }
        if (value instanceof RowData nested) {
            return rowData(nested, type.getChildren());
        }
        if (value instanceof ArrayData array) {
            ObjectNode node = of("list");
            node.putArray("v").addAll(elements(array, type.getChildren().get(0)));
            return node;
        }
        if (value instanceof MapData map) {
            LogicalType count = type.getChildren().size() > 1 ? type.getChildren().get(1) : new IntType(false);
            List<JsonNode> keys = elements(map.keyArray(), type.getChildren().get(0));
            List<JsonNode> values = elements(map.valueArray(), count);
            ObjectNode node = of("map");
            ArrayNode out = node.putArray("v");
            for (int i = 0; i < keys.size(); i++) {
                out.add(JSON.arrayNode().add(keys.get(i)).add(values.get(i)));
            }
            return node;
        }
        return value(value, List.of());
    }

    private static List<JsonNode> elements(ArrayData array, LogicalType type) {
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(type);
        List<JsonNode> nodes = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            nodes.add(internal(getter.getElementOrNull(array, i), type));
        }
        return nodes;
    }

    private static JsonNode pojo(Object value) {
        ObjectNode node = of("pojo").put("class", value.getClass().getName());
        TreeMap<String, JsonNode> ordered = new TreeMap<>();
        try {
            for (Field field : value.getClass().getFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    ordered.put(field.getName(), value(field.get(value), List.of()));
                }
            }
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
        node.putObject("v").setAll(ordered);
        return node;
    }
}
