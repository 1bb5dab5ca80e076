"""Types that Flink jobs bring along: enums, POJOs, foreign serializers."""
