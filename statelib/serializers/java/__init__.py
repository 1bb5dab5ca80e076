"""Types that only a Flink job brings along: enums, POJOs, values of foreign serializers, and of Flink's operators."""
