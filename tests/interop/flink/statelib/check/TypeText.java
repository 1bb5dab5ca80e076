package statelib.check;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.ObjectArrayTypeInfo;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;

/** statelib's text of a type, for example {@code row<flights: long, dest: string>}, as Flink's own type. */
final class TypeText {
    private static final Map<String, TypeInformation<?>> SCALARS = Map.ofEntries(
            Map.entry("boolean", Types.BOOLEAN), Map.entry("byte", Types.BYTE), Map.entry("short", Types.SHORT),
            Map.entry("int", Types.INT), Map.entry("long", Types.LONG), Map.entry("char", Types.CHAR),
            Map.entry("float", Types.FLOAT), Map.entry("double", Types.DOUBLE), Map.entry("string", Types.STRING),
            Map.entry("bytes", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO),
            Map.entry("bigint", Types.BIG_INT), Map.entry("bigdecimal", Types.BIG_DEC),
            Map.entry("date", Types.LOCAL_DATE), Map.entry("time", Types.LOCAL_TIME),
            Map.entry("datetime", Types.LOCAL_DATE_TIME), Map.entry("instant", Types.INSTANT),
            Map.entry("void", Types.VOID));
    private static final Map<String, TypeInformation<?>> ARRAYS = Map.of(
            "boolean", PrimitiveArrayTypeInfo.BOOLEAN_PRIMITIVE_ARRAY_TYPE_INFO,
            "short", PrimitiveArrayTypeInfo.SHORT_PRIMITIVE_ARRAY_TYPE_INFO,
            "int", PrimitiveArrayTypeInfo.INT_PRIMITIVE_ARRAY_TYPE_INFO,
            "long", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO,
            "float", PrimitiveArrayTypeInfo.FLOAT_PRIMITIVE_ARRAY_TYPE_INFO,
            "double", PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO,
            "char", PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO,
            "string", BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO);

    private TypeText() {}

    /** Name and parts: {@code map<string, long>} is {@code map} with two; {@code long} has none. */
    private record Parsed(String name, List<String> parts) {
        static Parsed of(String text) {
            int open = text.indexOf('<');
            if (open < 0) {
                return new Parsed(text.trim(), List.of());
            }
            List<String> parts = new ArrayList<>();
            int depth = 0;
            int start = open + 1;
            int end = text.lastIndexOf('>');
            for (int i = start; i < end; i++) {
                char c = text.charAt(i);
                depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
                if (depth == 0 && (c == ',' || c == ';')) {
                    parts.add(text.substring(start, i).trim());
                    start = i + 1;
                }
            }
            parts.add(text.substring(start, end).trim());
            return new Parsed(text.substring(0, open).trim(), parts);
        }
    }

    /** Types that Flink knows by serializer only are composed here, all others by their TypeInformation. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static TypeSerializer<Object> serializer(String text, ExecutionConfig config) throws Exception {
        Parsed parsed = Parsed.of(text);
        return (TypeSerializer) switch (parsed.name()) {
            case "timewindow" -> new TimeWindow.Serializer();
            case "globalwindow" -> new GlobalWindow.Serializer();
            case "ttl" -> new TtlStateFactory.TtlSerializer<>(
                    LongSerializer.INSTANCE, serializer(parsed.parts().get(0), config));
            case "tuple" -> {
                TypeSerializer[] fields = new TypeSerializer[parsed.parts().size()];
                for (int i = 0; i < fields.length; i++) {
                    fields[i] = serializer(parsed.parts().get(i), config);
                }
                yield new TupleSerializer(Tuple.getTupleClass(fields.length), fields);
            }
            default -> {
                // A descriptor hides that createSerializer takes another argument in Flink 2 than in Flink 1.
                ValueStateDescriptor<Object> descriptor = new ValueStateDescriptor<>("any", information(text));
                descriptor.initializeSerializerUnlessSet(config);
                yield descriptor.getSerializer();
            }
        };
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static TypeSerializer<Object> namespace(String text) {
        return (TypeSerializer) switch (text == null ? "void" : text) {
            case "void" -> VoidNamespaceSerializer.INSTANCE;
            case "timewindow" -> new TimeWindow.Serializer();
            case "globalwindow" -> new GlobalWindow.Serializer();
            default -> throw new IllegalArgumentException("namespace " + text);
        };
    }

    @SuppressWarnings("unchecked")
    static <T> TypeInformation<T> information(String text) throws ClassNotFoundException {
        return (TypeInformation<T>) untyped(text);
    }

    private static TypeInformation<?> untyped(String text) throws ClassNotFoundException {
        Parsed parsed = Parsed.of(text);
        List<String> parts = parsed.parts();
        return switch (parsed.name()) {
            case "array" -> ARRAYS.get(parts.get(0));
            case "objects" -> parts.get(0).equals("long")
                    ? BasicArrayTypeInfo.LONG_ARRAY_TYPE_INFO : ObjectArrayTypeInfo.getInfoFor(untyped(parts.get(0)));
            case "list" -> Types.LIST(untyped(parts.get(0)));
            case "map" -> Types.MAP(untyped(parts.get(0)), untyped(parts.get(1)));
            case "tuple" -> new TupleTypeInfo<>(all(parts));
            case "row" -> row(fields(parts));
            case "pojo" -> pojo(parts.get(0), fields(parts.subList(1, parts.size())));
            case "enum" -> enumeration(parts.get(0));
            case "kryo" -> Types.GENERIC(Class.forName(parts.get(0)));
            case "rowdata" -> rowData(parts);
            case "sql" -> InternalTypeInfo.of(LogicalTypeParser.parse(parts.get(0), TypeText.class.getClassLoader()));
            default -> {
                String name = parsed.name().startsWith("decimal(") ? "bigdecimal" : parsed.name();
                TypeInformation<?> scalar = SCALARS.get(name);
                if (scalar == null) {
                    throw new IllegalArgumentException("type " + text);
                }
                yield scalar;
            }
        };
    }

    private static TypeInformation<?>[] all(List<String> texts) throws ClassNotFoundException {
        TypeInformation<?>[] types = new TypeInformation<?>[texts.size()];
        for (int i = 0; i < types.length; i++) {
            types[i] = untyped(texts.get(i));
        }
        return types;
    }

    private static Map<String, TypeInformation<?>> fields(List<String> parts) throws ClassNotFoundException {
        Map<String, TypeInformation<?>> fields = new LinkedHashMap<>();
        for (String part : parts) {
            int colon = part.indexOf(':');
            fields.put(part.substring(0, colon).trim(), untyped(part.substring(colon + 1).trim()));
        }
        return fields;
    }

    private static TypeInformation<?> row(Map<String, TypeInformation<?>> fields) {
        return Types.ROW_NAMED(fields.keySet().toArray(new String[0]), fields.values().toArray(new TypeInformation<?>[0]));
    }

    private static TypeInformation<?> pojo(String name, Map<String, TypeInformation<?>> fields)
            throws ClassNotFoundException {
        return fields.isEmpty() ? Types.POJO(Class.forName(name)) : Types.POJO(Class.forName(name), fields);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static TypeInformation<?> enumeration(String name) throws ClassNotFoundException {
        return Types.ENUM((Class) Class.forName(name));
    }

    /** {@code rowdata<k: BIGINT, v: VARCHAR(10)>}: SQL's internal rows. */
    private static TypeInformation<?> rowData(List<String> parts) {
        RowType type = (RowType) LogicalTypeParser.parse(
                "ROW<" + String.join(", ", parts).replace(":", "") + ">", TypeText.class.getClassLoader());
        return InternalTypeInfo.of(type);
    }
}
