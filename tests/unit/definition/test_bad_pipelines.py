# ruff: noqa: E501 (a table: one mistake per line)
"""Every mistake in a pipeline file is one error with its place and its reason."""

import pytest

from statelib.definition.pipeline import load_pipeline
from statelib.errors import InvalidRequestError

GOOD = """\
name: flights
schedule: {cron: "@daily", start: 2013-01-01, end: 2013-12-31}
source:
  path: "{data}/flights/{start:%Y-%m-%d}"
  columns:
    tailnum: string
    dest: string
    distance: long
    blob: bytes
    time_hour: instant
key: [tailnum]
states:
  activity:
    kind: value
    fields:
      flights: {agg: count}
      last_dest: {agg: last, of: dest, by: time_hour}
  per_dest: {kind: map, user_key: dest, value: {agg: count}}
  longest: {kind: reducing, value: {agg: max, of: distance}}
  spread: {kind: aggregating, value: {agg: histogram, of: distance, bounds: [100, 1000]}}
  seen: {kind: list, value: {agg: distinct, of: dest}}
  custom: {kind: value, fields: {streak: long}, function: my.module:update}
backend: rocksdb
parallelism: 2
max_parallelism: 128
checkpoint: {strategy: full}
"""

CASES = {
    "typo in a top key": ("parallelism: 2", "paralelism: 2", 24, "paralelism: unknown key, did you mean 'parallelism'?"),
    "typo further down": ("{kind: map, user_key: dest", "{kind: map, userkey: dest", 18, "states.per_dest.userkey: unknown key, did you mean 'user_key'?"),
    "unlike any key": ("{strategy: full}", "{strategy: full, xyzzy: 1}", 26, "checkpoint.xyzzy: unknown key, known are strategy, inline_threshold_bytes"),
    "no time at all": ("{strategy: full}", "{strategy: full, timeout_s: 0}", 26, "checkpoint.timeout_s: expected greater than or equal to 1, found 0"),
    "fewer failures than none": ("{strategy: full}", "{strategy: full, tolerable_failures: -1}", 26, "checkpoint.tolerable_failures: expected greater than or equal to 0, found -1"),
    "no such execution": ("{strategy: full}", "{strategy: full, execution: later}", 26, "checkpoint.execution: expected 'async' or 'sync', found 'later'"),
    "no such policy": ("{strategy: full}", "{strategy: full, retain: {after_termination: RETAIN}}", 26, "checkpoint.retain.after_termination: expected 'NEVER_RETAIN_AFTER_TERMINATION', 'RETAIN_ON_FAILURE' or 'RETAIN_ON_CANCELLATION', found 'RETAIN'"),
    "path is not for files": ("parallelism: 2", "path: x", 24, "path: unknown key"),
    "no deadline": ("parallelism: 2", "alerts: {deadline: soon}", 24, "alerts.deadline: expected a duration such as 500ms, 90s, 15m, 1h or 7d, found 'soon'"),
    "no notifier": ("parallelism: 2", "alerts: {notify: [{notifier: pager}]}", 24, "alerts.notify.0.notifier: expected "),
    "nobody to tell": ("parallelism: 2", "alerts: {deadlines: 1h}", 24, "alerts.deadlines: unknown key, did you mean 'deadline'?"),
    "missing key": ("backend: rocksdb\n", "", 1, "backend: is missing"),
    "unknown aggregate": ("{agg: count}\n      last", "{agg: cuont}\n      last", 16, "states.activity.fields.flights.agg: unknown aggregate 'cuont', did you mean 'count'?; known are count, sum, min, max, avg, first, last, collect, distinct, histogram"),
    "top without by": ("{agg: last, of: dest, by: time_hour}", "{agg: top, of: dest, n: 2}", 17, "states.activity.fields.last_dest: top needs 'by': the columns that order the events"),
    "top of no number": ("{agg: last, of: dest, by: time_hour}", "{agg: top, of: dest, by: time_hour}", 17, "states.activity.fields.last_dest: top needs 'n': how many events to store"),
    "top of none": ("{agg: last, of: dest, by: time_hour}", "{agg: top, of: dest, by: time_hour, n: 0}", 17, "states.activity.fields.last_dest.n: expected greater than or equal to 1, found 0"),
    "a number of nothing": ("{agg: last, of: dest, by: time_hour}", "{agg: last, of: dest, by: time_hour, n: 2}", 17, "states.activity.fields.last_dest.n: last has none; it belongs to top, bottom"),
    "a limit of a sum": ("{agg: last, of: dest, by: time_hour}", "{agg: sum, of: distance, limit: 2}", 17, "states.activity.fields.last_dest.limit: sum has none; it belongs to collect, distinct"),
    "decay without a half-life": ("{agg: last, of: dest, by: time_hour}", "{agg: decay, of: distance, by: time_hour}", 17, "states.activity.fields.last_dest: decay needs 'half_life': the time in which a value is halved, for example 7d"),
    "decay at once": ("{agg: last, of: dest, by: time_hour}", "{agg: decay, of: distance, by: time_hour, half_life: 0s}", 17, "states.activity.fields.last_dest.half_life: expected a duration of more than 0"),
    "decay of no time": ("{agg: last, of: dest, by: time_hour}", "{agg: decay, of: distance, by: dest, half_life: 1h}", 17, "states.activity.fields.last_dest.by: decay takes a time, instant or datetime; dest is string"),
    "latest of one column": ("{agg: last, of: dest, by: time_hour}", "{agg: latest, of: dest, by: time_hour}", 17, "states.activity.fields.last_dest.of: latest takes all columns of the event; name some of them with last"),
    "latest without by": ("{agg: last, of: dest, by: time_hour}", "{agg: latest}", 17, "states.activity.fields.last_dest: latest needs 'by': the columns that order the events"),
    "a sketch of times": ("{agg: last, of: dest, by: time_hour}", "{agg: approx_distinct, of: time_hour}", 17, "states.activity.fields.last_dest.of: approx_distinct takes a column of type byte, short, int, long, string, bytes; time_hour is instant"),
    "a sketch of nothing": ("{agg: last, of: dest, by: time_hour}", "{agg: theta}", 17, "states.activity.fields.last_dest: theta needs 'of': the column it is computed from"),
    "a bitmap of texts": ("{agg: last, of: dest, by: time_hour}", "{agg: bitmap, of: dest}", 17, "states.activity.fields.last_dest.of: bitmap takes a column of type byte, short, int, long; dest is string"),
    "a sketch with an order": ("{agg: last, of: dest, by: time_hour}", "{agg: theta, of: dest, by: time_hour}", 17, "states.activity.fields.last_dest.by: theta has no order; 'by' belongs to first, last, latest, top, bottom, decay"),
    "undeclared column": ("of: dest, by", "of: destt, by", 17, "states.activity.fields.last_dest.of: column 'destt' is not in source.columns, did you mean 'dest'?; declared are tailnum, dest,"),
    "undeclared order": ("by: time_hour", "by: [distance, hour]", 17, "states.activity.fields.last_dest.by: column 'hour' is not in source.columns"),
    "no order": (", by: time_hour", "", 17, "states.activity.fields.last_dest: last needs 'by'"),
    "order where there is none": ("{agg: count}}", "{agg: count, by: dest}}", 18, "states.per_dest.value.by: count has no order"),
    "order twice": ("by: time_hour", "by: [time_hour, time_hour]", 17, "states.activity.fields.last_dest.by: expected each column once"),
    "wrong type": ("{agg: max, of: distance}", "{agg: sum, of: dest}", 19, "states.longest.value.of: sum takes a column of type byte, short, int, long, float, double, decimal; dest is string"),
    "a condition that is no boolean": ("{agg: max, of: distance}", "{agg: max, of: distance, where: dest}", 19, "states.longest.value.where: expected a boolean column; dest is string"),
    "a condition of no column": ("{agg: max, of: distance}", "{agg: max, of: distance, where: far}", 19, "states.longest.value.where: column 'far' is not in source.columns"),
    "no column": ("{agg: max, of: distance}", "{agg: max}", 19, "states.longest.value: max needs 'of'"),
    "too much parallelism": ("parallelism: 2", "parallelism: 129", 24, "parallelism: 129 is more than max_parallelism, 128"),
    "parallelism of nothing": ("parallelism: 2", "parallelism: 0", 24, "parallelism: expected greater than or equal to 1, found 0"),
    "parallelism beyond Flink's": ("max_parallelism: 128", "max_parallelism: 32769", 25, "max_parallelism: expected less than or equal to 32768, found 32769"),
    "parallelism of truth": ("parallelism: 2", "parallelism: true", 24, "parallelism: expected a whole number, found True"),
    "key of bytes": ("key: [tailnum]", "key: [blob]", 11, "key.0: column blob is bytes, which cannot be a key; key types are boolean,"),
    "key undeclared": ("key: [tailnum]", "key: [tailnum, tail]", 11, "key.1: column 'tail' is not in source.columns, did you mean 'tailnum'?"),
    "key twice": ("key: [tailnum]", "key: [tailnum, tailnum]", 11, "key.1: column 'tailnum' is given twice"),
    "no key": ("key: [tailnum]", "key: []", 11, "key: expected 1 to 25 columns, found 0"),
    "user key of bytes": ("user_key: dest", "user_key: blob", 18, "states.per_dest.user_key: column blob is bytes, which cannot be a key"),
    "user key missing": ("user_key: dest, ", "", 18, "states.per_dest: a map state needs 'user_key'"),
    "user key of no map": ("{kind: reducing,", "{kind: reducing, user_key: dest,", 19, "states.longest.user_key: only a map state has one, not a reducing state"),
    "unknown type": ("distance: long", "distance: lung", 8, "source.columns.distance: "),
    "column of nothing": ("blob: bytes", "blob: void", 9, "source.columns.blob: type void has no values"),
    "duplicate state": ("  seen: {", "  longest: {", 21, "states.longest: given twice, first on line 19"),
    "state names in capitals": ("  seen: {", "  Longest: {", 21, "states.Longest: state 'longest' has this name: a query could not distinguish them"),
    "field names in capitals": ("      last_dest: {", "      Flights: {", 13, "states.activity: a query could not distinguish its columns 'flights' and 'Flights'"),
    "a key column in capitals": ("      last_dest: {", "      TAILNUM: {", 13, "states.activity: a query could not distinguish its columns 'tailnum' and 'TAILNUM'"),
    "a text that is false in YAML": ("  columns:", "  format: csv\n  options: {nullValue: NO}\n  columns:", 6, "source.options.nullValue: YAML takes NO for false: write this, or put the text in quotes"),
    "duplicate key": ("parallelism: 2", "name: other", 24, "name: given twice, first on line 1"),
    "forbidden state name": ("  seen: {", "  default: {", 21, "states.default: expected a state name other than '' and 'default'"),
    "no such kind": ("kind: list", "kind: set", 21, "states.seen.kind: expected 'value', 'list', 'map', 'reducing' or 'aggregating', found 'set'"),
    "list of sums": ("{agg: distinct, of: dest}", "{agg: sum, of: distance}", 21, "states.seen.value.agg: a list state takes collect, distinct, top, bottom, found 'sum'"),
    "reducing to a mean": ("{agg: max, of: distance}", "{agg: avg, of: distance}", 19, "states.longest.value.agg: a reducing state takes count, sum, min, max, bool_and, bool_or, found 'avg'"),
    "reducing fields": ("{kind: reducing, value: {agg: max, of: distance}}", "{kind: reducing, fields: {a: {agg: count}}}", 19, "states.longest.fields: a reducing state takes one 'value' instead of fields"),
    "nothing held": (", value: {agg: count}}", "}", 18, "states.per_dest: expected 'value' or 'fields'"),
    "both held": ("user_key: dest, value", "user_key: dest, fields: {a: {agg: count}}, value", 18, "states.per_dest: expected either 'value' or 'fields', found both"),
    "no bounds": (", bounds: [100, 1000]", "", 20, "states.spread.value: histogram needs 'bounds'"),
    "falling bounds": ("[100, 1000]", "[100, 100]", 20, "states.spread.value.bounds: expected ascending numbers, found 100, 100"),
    "endless bounds": ("[100, 1000]", "[100, .inf]", 20, "states.spread.value.bounds.1: expected a finite number, found inf"),
    "bounds of a maximum": ("{agg: max, of: distance}", "{agg: max, of: distance, bounds: [1]}", 19, "states.longest.value.bounds: max has none"),
    "aggregate and type": ("{agg: max, of: distance}", "{agg: max, of: distance, type: long}", 19, "states.longest.value.type: follows from the aggregate"),
    "type without function": ("{agg: count}\n      last", "long\n      last", 16, "states.activity.fields.flights: a type alone is for states with a function; expected 'agg'"),
    "aggregate with function": ("{streak: long}", "{streak: {agg: count}}", 22, "states.custom.fields.streak: expected a type"),
    "field is a key": ("{streak: long}", "{tailnum: long}", 22, "states.custom.fields.tailnum: is also a key column"),
    "bad field type": ("{streak: long}", "{streak: lung}", 22, "states.custom.fields.streak: "),
    "function for a list": ("custom: {kind: value", "custom: {kind: list", 22, "states.custom.kind: a function takes a value state, found a list state"),
    "no function": ("my.module:update", "my.module.update", 22, "states.custom.function: expected package.module:name, found 'my.module.update'"),
    "setting of another strategy": ("{strategy: full}", "{strategy: full, materialize_after_bytes: 9}", 26, "checkpoint.materialize_after_bytes: belongs to strategy: changelog, found full"),
    "too large a log": ("{strategy: full}", "{strategy: changelog, materialize_after_bytes: 1073741825}", 26, "checkpoint.materialize_after_bytes: expected less than or equal to 1073741824, found 1073741825"),
    "no checkpoint of a log": ("{strategy: full}", "{strategy: changelog, materialize_after_checkpoints: 0}", 26, "checkpoint.materialize_after_checkpoints: expected greater than or equal to 1, found 0"),
    "no such strategy": ("{strategy: full}", "{strategy: ful}", 26, "checkpoint.strategy: backend rocksdb takes full, incremental, canonical, changelog, found 'ful', did you mean 'full'?"),
    "too much inline": ("{strategy: full}", "{inline_threshold_bytes: 1048577}", 26, "checkpoint.inline_threshold_bytes: expected less than or equal to 1048576, found 1048577"),
    "half local": ("{strategy: full}", "{local_recovery: 1}", 26, "checkpoint.local_recovery: expected true or false, found 1"),
    "no such strategy of the heap": ("backend: rocksdb\nparallelism: 2\nmax_parallelism: 128\ncheckpoint: {strategy: full}", "backend: heap\ncheckpoint: {strategy: ful}", 24, "checkpoint.strategy: backend heap takes canonical, full, changelog, found 'ful', did you mean 'full'?"),
    "no such backend": ("backend: rocksdb", "backend: forst", 23, "backend: expected 'heap' or 'rocksdb', found 'forst'"),
    "no such placeholder": ("{start:%Y-%m-%d}", "{day}", 4, "source.path: unknown placeholder {day}; known are {data}, {start}, {end}"),
    "attribute of a placeholder": ("{start:%Y-%m-%d}", "{start.year}", 4, "source.path: unknown placeholder {start.year}, did you mean 'start'?"),
    "broken template": ("{start:%Y-%m-%d}", "{start", 4, "source.path: not a template: "),
    "no path of its own": ("{start:%Y-%m-%d}", "all", 4, "source.path: names neither {start} nor {end}: every interval would apply the same events again"),
    "a path of several intervals": ("{start:%Y-%m-%d}", "{start:%Y-%m}", 4, "source.path: the intervals [2013-01-01T00:00:00+00:00, 2013-01-02T00:00:00+00:00) and [2013-01-02T00:00:00+00:00, 2013-01-03T00:00:00+00:00) have the same path"),
    "a path that comes again": ("{start:%Y-%m-%d}", "{start:%a}", 4, "source.path: the intervals [2013-01-01T00:00:00+00:00, 2013-01-02T00:00:00+00:00) and [2013-01-08"),
    "a format of nothing": ("{start:%Y-%m-%d}", "{start:day}", 4, "source.path: the intervals [2013-01-01"),
    "a path and a table": ("  columns:", "  table: lake.flights\n  columns:", 5, "source.table: a source is a path or a table, found both"),
    "neither path nor table": ('  path: "{data}/flights/{start:%Y-%m-%d}"\n', "", 3, "source.path: is missing: expected path or table"),
    "a table of every interval": ('path: "{data}/flights/{start:%Y-%m-%d}"', "table: lake.flights", 4, "source.table: names neither {start} nor {end}: every interval would apply the same events again; write source.where"),
    "a condition that takes the end twice": ("  columns:", "  where: \"t >= '{start}' AND t <= '{end}'\"\n  columns:", 5, "source.where: an event at {end} would be applied by two intervals; write >= '{start}' AND ... < '{end}'"),
    "a condition between both": ("  columns:", "  where: \"t BETWEEN TIMESTAMP '{start}' AND TIMESTAMP '{end}'\"\n  columns:", 5, "source.where: an event at {end} would be applied by two intervals"),
    "a condition without the start": ("  columns:", "  where: \"t > '{start}' AND t < '{end}'\"\n  columns:", 5, "source.where: an event at {start} would never be applied"),
    "a condition with one end": ('path: "{data}/flights/{start:%Y-%m-%d}"', "table: lake.flights\n  where: \"t >= '{start}'\"", 5, "source.where: names one end of the interval only: events would be applied by several intervals"),
    "a query that takes the end twice": ('path: "{data}/flights/{start:%Y-%m-%d}"', "format: jdbc\n  options: {query: \"SELECT * FROM t WHERE at BETWEEN '{start}' AND '{end}'\"}", 5, "source.options.query: an event at {end} would be applied by two intervals; write >= '{start}' AND ... < '{end}'"),
    "a query with one end": ('path: "{data}/flights/{start:%Y-%m-%d}"', "format: jdbc\n  options: {query: \"SELECT * FROM t WHERE at >= '{start}'\"}", 5, "source.options.query: names one end of the interval only: events would be applied by several intervals"),
    "a placeholder of no condition": ("  columns:", "  where: \"t >= '{begin}'\"\n  columns:", 5, "source.where: unknown placeholder {begin}"),
    "a brace of a regular expression": ("  columns:", "  where: \"dest RLIKE '[A-Z]{3}'\"\n  columns:", 5, "source.where: unknown placeholder {3}; known are {data}, {start}, {end}; double a brace of your own: {{3}}"),
    "a brace without another": ("  columns:", "  where: \"dest = '{'\"\n  columns:", 5, "source.where: not a template: expected '}' before end of string; double a brace of your own: {{ or }}"),
    "SQL's name of a type": ("distance: long", "distance: BIGINT", 8, "source.columns.distance: expected long, found BIGINT"),
    "a variable outside the options": ("  columns:", "  where: \"t = '{env[X]}'\"\n  columns:", 5, "source.where: unknown placeholder {env[X]}"),
    "a path among the options": ("  columns:", "  options: {path: /x}\n  columns:", 5, "source.options.path: write it as source.path"),
    "a mode that Spark does not know": ("  columns:", "  format: csv\n  options: {Mode: dropmalformd}\n  columns:", 6, "source.options.Mode: expected FAILFAST, DROPMALFORMED, PERMISSIVE; found 'dropmalformd'"),
    "no zone": ("  columns:", "  time_zone: Berlin\n  columns:", 5, "source.time_zone: expected a time zone such as Europe/Berlin, found 'Berlin'"),
    "no zone of the schedule": ("start: 2013-01-01", "time_zone: Berlin, start: 2013-01-01", 2, "schedule.time_zone: expected a time zone such as Europe/Berlin, found 'Berlin'"),
    "a bound in a column": ("dest: string", "dest: {expr: \"'{start:%Y-%m-%d}'\", type: string}", 7, "source.columns.dest.expr: {start:%Y-%m-%d} is not replaced in an expression, only in path, table, where and options"),
    "a bound in a list": ("  columns:", "  each: {stop: \"filter(stops, s -> s.at < '{end}')\"}\n  columns:", 5, "source.each.stop: {end} is not replaced in an expression"),
    "a cron that the clock takes apart": ('"@daily", start', '"* 2 * * *", time_zone: Europe/Berlin, start', 2, "schedule.cron: '* 2 * * *': Airflow's intervals do not follow each other when the clock of Europe/Berlin is set forward at 2013-03-31T03:00:00+02:00"),
    "an option without text": ("  columns:", "  options: {header: [1]}\n  columns:", 5, "source.options.header: expected a text, found [1]"),
    "an expression without a type": ("distance: long", "distance: {expr: a + b}", 8, "source.columns.distance.type: is missing"),
    "an expression of nothing": ("distance: long", "distance: {type: long, expr: ' '}", 8, "source.columns.distance.expr: expected an expression in SQL, found none"),
    "a list of what Spark does not read": ("blob: bytes", "blob: list<time>", 9, "source.columns.blob: a column is one of boolean, byte, "),
    "no cron": ("@daily", "at noon", 2, "schedule.cron: 'at noon': expected a cron expression of five fields"),
    "a random time": ("@daily", "R 3 * * *", 2, "schedule.cron: 'R 3 * * *': expected times that are always the same"),
    "a time that never comes": ("@daily", "0 0 30 2 *", 2, "schedule.cron: '0 0 30 2 *': its time never comes"),
    "a column of several values": ("distance: long", "distance: row<a long>", 8, "source.columns.distance: "),
    "a column that Spark does not read": ("blob: bytes", "blob: time", 9, "source.columns.blob: a column is one of boolean, byte, "),
    "bad name": ("name: flights", "name: a/b", 1, "name: pipeline name 'a/b': expected letters"),
    "the directory of savepoints": ("name: flights", "name: savepoints", 1, "name: 'savepoints' is the directory of savepoints"),
    "cron and asset": ('cron: "@daily"', 'cron: "@daily", asset: "s3://raw/orders"', 2, "schedule: expected one of cron and asset"),
    "neither cron nor asset": ('cron: "@daily", ', "", 2, "schedule: expected one of cron and asset"),
    "an asset without a URI": ('cron: "@daily"', "asset: orders", 2, "schedule.asset: expected a URI such as s3://lake/orders"),
    "an asset that Airflow cannot parse": ('cron: "@daily"', 'asset: "http://[x"', 2, "schedule.asset: expected a URI such as s3://lake/orders"),
    "an asset of Airflow's own scheme": ('cron: "@daily"', 'asset: "AIRFLOW://x"', 2, "schedule.asset: expected a URI such as s3://lake/orders"),
    "an asset to wait for without a URI": ("  columns:", "  ready: {asset: orders}\n  columns:", 5, "source.ready.asset: expected a URI such as s3://lake/orders"),
    "an asset that catches up": ('cron: "@daily"', 'catchup: true, asset: "s3://raw/orders"', 2, "schedule.catchup: has no meaning for an asset"),
    "end before start": ("end: 2013-12-31", "end: 2012-12-31", 2, "schedule.end: 2012-12-31 00:00:00+00:00 is before start"),
    "no date": ("start: 2013-01-01", "start: soon", 2, "schedule.start: expected a valid datetime"),
    "a date without dashes": ("start: 2013-01-01", "start: 20130101", 2, "schedule.start: expected a date or a time such as 2026-01-31 or 2026-01-31T06:00, found 20130101"),
    "a year as text": ("start: 2013-01-01", "start: '2013'", 2, "schedule.start: expected a date or a time such as"),
    "checks": ("parallelism: 2", "checks: [rows]", 24, "checks: expected a mapping, found ['rows']"),
    "a type that YAML cuts": ("  columns:\n    tailnum: string\n    dest: string\n    distance: long\n    blob: bytes\n    time_hour: instant", "  columns: {tailnum: string, dest: string, price: decimal(10,2), distance: long, time_hour: instant}", 5, "source.columns.2): found no value, because YAML takes a comma for the end: write the type in quotes, as in 'decimal(10, 2)'"),
    "a column without a type": ("distance: long", "distance:", 8, "source.columns.distance: expected a type or a mapping, found nothing"),
    "typo in checks": ("parallelism: 2", "checks: {drfit: {}}", 24, "checks.drfit: unknown key, did you mean 'drift'?"),
    "typo in drift": ("parallelism: 2", "checks: {drift: {entry: {most: 20%}}}", 24, "checks.drift.entry: unknown key, did you mean 'entries'?"),
    "no share": ("parallelism: 2", "checks: {drift: {entries: {most: much}}}", 24, "checks.drift.entries.most: expected a share such as 20% or 0.2, found 'much'"),
    "no severity": ("parallelism: 2", "checks: {drift: {entries: {most: 1, severity: error}}}", 24, "checks.drift.entries.severity: expected 'warn', 'quarantine' or 'fail', found 'error'"),
    "drift of no state": ("parallelism: 2", "checks: {drift: {null_rate: {states.flights: {most: 0.1}}}}", 24, "checks.drift.null_rate.states.flights: expected <state>.<column>, did you mean 'activity.flights'?"),
    "drift of no column": ("parallelism: 2", "checks: {drift: {distribution: {activity.flight: {}}}}", 24, "checks.drift.distribution.activity.flight: state activity has no column 'flight', did you mean 'flights'?; it has tailnum, flights, last_dest, last_dest.by_time_hour"),
    "distribution of maps": ("{streak: long}, function: my.module:update}\nbackend: rocksdb", "{streak: 'map<string, long>'}, function: my.module:update}\nbackend: rocksdb\nchecks: {drift: {distribution: {custom.streak: {}}}}", 24, "checks.drift.distribution.custom.streak: column 'streak' is map<string, long>: only single values"),
    "distribution of lists": ("parallelism: 2", "checks: {drift: {distribution: {seen.value: {}}}}", 24, "checks.drift.distribution.seen.value: column 'value' is list<string>: only single values"),
    "unknown expectation": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_values_to_be_betwen}]}", 24, "checks.expectations.0.expect: unknown expectation 'column_values_to_be_betwen', did you mean 'column_values_to_be_between'?"),
    "the library's own spelling": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: expect_table_row_count_to_equal, value: 1}]}", 24, "checks.expectations.0.expect: unknown expectation 'expect_table_row_count_to_equal', did you mean 'table_row_count_to_equal'?"),
    "expectation of no state": ("parallelism: 2", "checks: {expectations: [{state: x, expect: table_row_count_to_equal, value: 1}]}", 24, "checks.expectations.0.state: unknown state 'x'; states are activity,"),
    "parameter that is missing": ("parallelism: 2", "checks: {expectations: [{state: seen, expect: column_values_to_be_in_set, column: tailnum}]}", 24, "checks.expectations.0: column_values_to_be_in_set needs 'value_set'"),
    "unknown parameter": ("parallelism: 2", "checks: {expectations: [{state: seen, expect: column_values_to_be_null, column: tailnum, mostli: 1}]}", 24, "checks.expectations.0.mostli: unknown parameter of column_values_to_be_null, did you mean 'mostly'?"),
    "wrong parameter": ("parallelism: 2", "checks: {expectations: [{state: seen, expect: column_values_to_be_null, column: tailnum, mostly: 95}]}", 24, "checks.expectations.0.mostly: expected a share, 0 to 1, found 95"),
    "expectation without bounds": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_max_to_be_between, column: flights}]}", 24, "checks.expectations.0: column_max_to_be_between needs 'min_value' or 'max_value'"),
    "bounds the wrong way round": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: table_row_count_to_be_between, min_value: 5, max_value: 1}]}", 24, "checks.expectations.0: expected a min_value of at most max_value, found 5 and 1"),
    "no regular expression": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_values_to_match_regex, column: tailnum, regex: 'N['}]}", 24, "checks.expectations.0.regex: expected a regular expression, found 'N['"),
    "a match of some": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_values_to_match_regex_list, column: tailnum, regex_list: [N], match_on: some}]}", 24, "checks.expectations.0.match_on: expected any or all, found 'some'"),
    "values in place of pairs": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_pair_values_to_be_in_set, column_A: tailnum, column_B: flights, value_pairs_set: [a]}]}", 24, "checks.expectations.0.value_pairs_set: expected a list of pairs, found ['a']"),
    "one column that is unique together": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: compound_columns_to_be_unique, column_list: [tailnum]}]}", 24, "checks.expectations.0.column_list: expected a list of two or more columns, found ['tailnum']"),
    "column that is not there": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_values_to_not_be_null, column: flght}]}", 24, "checks.expectations.0.column: state activity has no column 'flght', did you mean 'flights'?"),
    "length of lists": ("parallelism: 2", "checks: {expectations: [{state: seen, expect: column_value_lengths_to_equal, column: value, value: 2}]}", 24, "checks.expectations.0.column: column 'value' is list<string>: an expectation can only be about its nulls, such as column_values_to_not_be_null"),
    "YAML's Norway": ("parallelism: 2", "checks: {expectations: [{state: activity, expect: column_values_to_not_be_in_set, column: tailnum, value_set: [SE, NO]}]}", 24, "checks.expectations.0.value_set: column 'tailnum' is string: expected texts, found False; put it in quotes"),
    "the same twice": ("parallelism: 2", "checks: {expectations: [{state: seen, expect: table_row_count_to_equal, value: 1}, {state: seen, expect: table_row_count_to_equal, value: 1}]}", 24, "checks.expectations.1: table_row_count_to_equal(value=1) is given twice"),
    "YAML's own truth": ("    distance: long", "    on: long", 8, "source.columns: key 'on': expected text (put it in quotes)"),
    "broken YAML": ("key: [tailnum]", "key: [tailnum", 12, "not valid YAML: "),
    "renamed from a present state": ("{kind: reducing,", "{kind: reducing, renamed_from: seen,", 19, "states.longest.renamed_from: there is a state 'seen' in this file"),
    "renamed from a present field": ("{agg: count}\n      last", "{agg: count, renamed_from: last_dest}\n      last", 16, "states.activity.fields.flights.renamed_from: there is a field 'last_dest'"),
    "two of one earlier name": ("  longest: {kind: reducing,", "  a: {kind: reducing, renamed_from: x, value: {agg: count}}\n  longest: {kind: reducing, renamed_from: [y, x],", 20, "states.longest.renamed_from: 'x' is an earlier name of state 'a' already"),
    "a value without a name": ("{agg: max, of: distance}", "{agg: max, of: distance, renamed_from: a}", 19, "states.longest.value.renamed_from: a value has no name"),
    "renamed from itself": ("parallelism: 2", "renamed_from: flights", 24, "renamed_from: 'flights' is the present name"),
    "no operator id": ("parallelism: 2", "uid_hash: abc", 24, "uid_hash: expected "),
    "no columns": ("  columns:\n", "  columns: {}\n  kolumns:\n", 6, "source.kolumns: unknown key, did you mean 'columns'?"),
}  # fmt: skip

KINDS = {
    "no path of its own": "source-not-bounded",
    "a path of several intervals": "source-not-bounded",
    "a path that comes again": "source-not-bounded",
    "a format of nothing": "source-not-bounded",
    "a table of every interval": "source-not-bounded",
    "a condition that takes the end twice": "source-not-bounded",
    "a condition between both": "source-not-bounded",
    "a condition without the start": "source-not-bounded",
    "a condition with one end": "source-not-bounded",
    "a query that takes the end twice": "source-not-bounded",
    "a query with one end": "source-not-bounded",
    "no cron": "bad-cron",
    "a cron that the clock takes apart": "bad-cron",
    "a random time": "bad-cron",
    "a time that never comes": "bad-cron",
}
"""The mistakes whose error has another kind."""


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_clear_error(tmp_path, case):
    old, new, line, expected = CASES[case]
    assert GOOD.count(old) >= 1
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InvalidRequestError) as caught:
        load_pipeline(path)
    assert caught.value.kind == KINDS.get(case, "bad-pipeline")
    assert caught.value.message.startswith(f"{path}:{line}: {expected}")
    assert "\n" not in caught.value.message


def test_the_file_without_mistakes_is_valid(tmp_path):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD)
    assert len(load_pipeline(path).schema().states) == 6


def test_several_mistakes_are_reported_one_per_line_in_order(tmp_path):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace("key: [tailnum]", "key: [tail]").replace("of: distance}", "of: far}"))
    with pytest.raises(InvalidRequestError) as caught:
        load_pipeline(path)
    lines = caught.value.message.splitlines()
    assert [line.removeprefix(f"{path}:").split(": ")[:2] for line in lines] == [
        ["11", "key.0"],
        ["19", "states.longest.value.of"],
    ]


@pytest.mark.parametrize(
    ("more", "field"), [("delete_when: \"at < '{end}'\"", "delete_when"), ('changes: "op{start}"', "changes.op")]
)
def test_a_bound_in_a_delete_or_a_change_is_one_of_the_mistakes(tmp_path, more, field):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace("  columns:", f"  {more}\n  columns:"))
    with pytest.raises(InvalidRequestError) as caught:
        load_pipeline(path)
    assert f"flights.yaml:5: source.{field}: {{" in caught.value.message
    assert "is not replaced in an expression" in caught.value.message


@pytest.mark.parametrize(
    "where",
    [
        "'{start}' <= at AND at <= '{end}'", "'{end}' >= at AND (at) >= '{start}'",
        "at BETWEEN CAST('{start}' AS TIMESTAMP) AND CAST('{end}' AS TIMESTAMP)",
        "at >= to_timestamp('{start}') AND at <= to_timestamp('{end}')",
        "at >= (TIMESTAMP '{start}') AND at <= (TIMESTAMP '{end}')",
        "at >= '{start}'::timestamp AND at <= '{end}'::timestamp",
    ],
)  # fmt: skip
def test_an_end_that_is_taken_twice_is_refused_in_each_form(tmp_path, where):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace('path: "{data}/flights/{start:%Y-%m-%d}"', f'table: t\n  where: "{where}"'))
    with pytest.raises(InvalidRequestError, match="would be applied by two intervals"):
        load_pipeline(path)
    path.write_text(path.read_text().replace("<= '{end}", "< '{end}").replace("at <=", "at <").replace("' >=", "' >"))
    if "BETWEEN" not in where:
        load_pipeline(path)


@pytest.mark.parametrize("text", ["", "just text", "- a\n- list\n", "---\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRequestError, match=r"x\.yaml:[12]: expected a mapping with the keys of a pipeline"):
        load_pipeline(path)
