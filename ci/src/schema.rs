//! JSON Schemas (draft 2020-12) of the two files, for editors and for `GET /schema/…`.
//!
//! They say less than the parser does: what refers to other jobs or files cannot be said in a schema.

/// Schema of `.sluice.yml`.
pub const PIPELINE: &str = include_str!("../schema/pipeline.json");
/// Schema of gate files.
pub const GATE: &str = include_str!("../schema/gate.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value as Json, json};

    use super::*;
    use crate::{
        keys,
        pipeline::tests::{BAD, BAD_GATES, EXAMPLE, EXAMPLE_GATE},
        yaml::{self, Node, Value},
    };

    fn schema(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn to_json(node: &Node) -> Json {
        match &node.value {
            Value::Null => Json::Null,
            Value::Bool(b) => json!(b),
            Value::Int(n) => json!(n),
            Value::Float(x) => json!(x),
            Value::Text(text) => json!(text),
            Value::List(items) => items.iter().map(to_json).collect(),
            Value::Map(entries) => Json::Object(entries.iter().map(|(key, _, node)| (key.clone(), to_json(node))).collect()),
        }
    }

    /// The keywords that the two schemas use, `pattern` apart. Any other keyword is a failure of the test itself.
    fn valid(root: &Json, schema: &Map<String, Json>, value: &Json) -> bool {
        let sub = |schema: &Json, value: &Json| valid(root, schema.as_object().unwrap(), value);
        let size = |v: &Json| match v {
            Json::String(s) => s.chars().count() as u64,
            Json::Array(a) => a.len() as u64,
            Json::Object(o) => o.len() as u64,
            _ => 0,
        };
        let is = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            other => panic!("type {other}"),
        };
        let number = |limit: &Json, ok: fn(f64, f64) -> bool| value.as_f64().is_none_or(|v| ok(v, limit.as_f64().unwrap()));
        schema.iter().all(|(keyword, rule)| match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "default" | "pattern" => true,
            "$ref" => sub(root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).expect("a definition"), value),
            "type" => match rule {
                Json::Array(kinds) => kinds.iter().any(|k| is(k.as_str().unwrap())),
                kind => is(kind.as_str().unwrap()),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "required" => value.as_object().is_none_or(|o| rule.as_array().unwrap().iter().all(|k| o.contains_key(k.as_str().unwrap()))),
            "dependentRequired" => value.as_object().is_none_or(|o| {
                rule.as_object()
                    .unwrap()
                    .iter()
                    .all(|(k, needs)| !o.contains_key(k) || needs.as_array().unwrap().iter().all(|n| o.contains_key(n.as_str().unwrap())))
            }),
            "properties" => {
                let named = rule.as_object().unwrap();
                value.as_object().is_none_or(|o| o.iter().all(|(k, v)| named.get(k).is_none_or(|s| sub(s, v))))
            }
            "additionalProperties" => value.as_object().is_none_or(|o| {
                let named = schema.get("properties").and_then(Json::as_object);
                o.iter()
                    .filter(|(k, _)| named.is_none_or(|n| !n.contains_key(*k)))
                    .all(|(_, v)| rule.as_bool() != Some(false) && (rule.is_boolean() || sub(rule, v)))
            }),
            "propertyNames" => value.as_object().is_none_or(|o| o.keys().all(|k| sub(rule, &json!(k)))),
            "items" => value.as_array().is_none_or(|a| a.iter().all(|v| sub(rule, v))),
            "uniqueItems" => value.as_array().is_none_or(|a| (1..a.len()).all(|i| !a[..i].contains(&a[i]))),
            "minItems" => !value.is_array() || size(value) >= rule.as_u64().unwrap(),
            "maxItems" => !value.is_array() || size(value) <= rule.as_u64().unwrap(),
            "minProperties" => !value.is_object() || size(value) >= rule.as_u64().unwrap(),
            "maxProperties" => !value.is_object() || size(value) <= rule.as_u64().unwrap(),
            "minLength" => !value.is_string() || size(value) >= rule.as_u64().unwrap(),
            "maxLength" => !value.is_string() || size(value) <= rule.as_u64().unwrap(),
            "minimum" => number(rule, |v, limit| v >= limit),
            "maximum" => number(rule, |v, limit| v <= limit),
            "exclusiveMinimum" => number(rule, |v, limit| v > limit),
            "oneOf" => rule.as_array().unwrap().iter().filter(|s| sub(s, value)).count() == 1,
            "anyOf" => rule.as_array().unwrap().iter().any(|s| sub(s, value)),
            other => panic!("keyword {other}"),
        })
    }

    fn accepts(schema_text: &str, source: &str) -> bool {
        let root = schema(schema_text);
        valid(&root, root.as_object().unwrap(), &to_json(&yaml::parse(source).unwrap()))
    }

    #[test]
    fn the_examples_are_valid() {
        assert!(accepts(PIPELINE, EXAMPLE));
        assert!(accepts(GATE, EXAMPLE_GATE));
    }

    #[test]
    fn the_schemas_refuse_what_they_can() {
        // Errors that need a pattern, other jobs or other files to be seen.
        let beyond = |part: &str| {
            ["s, m or h", "NUL", "job name", "relative", "environment variable name", "set by Sluice", "branch pattern"].contains(&part)
                || [
                    "none, or",
                    "there is no job",
                    "cannot need itself",
                    "a → c",
                    "no promote part",
                    "an output",
                    "it has w",
                    "must be in",
                    "does not exist",
                    "neither",
                ]
                .iter()
                .any(|p| part.starts_with(p))
        };
        let mut refused = 0;
        for (source, field, _, part) in BAD {
            if field.is_empty() || beyond(part) {
                continue;
            }
            assert!(!accepts(PIPELINE, source), "{source}");
            refused += 1;
        }
        assert!(refused >= 20, "{refused}");
        for (source, field, _) in BAD_GATES {
            // An infinite number has no JSON form; an order between two fields has no keyword.
            if !source.contains(".inf") && !source.contains("min: 2, max: 1") && !source.contains("ratio_of_medians, margin: 5") {
                assert!(!accepts(GATE, source), "{source} {field}");
            }
        }
    }

    #[test]
    fn the_schemas_know_the_keys_of_the_parser() {
        let known = |schema: &Json, pointer: &str| -> BTreeSet<String> {
            schema
                .pointer(&format!("{pointer}/properties"))
                .unwrap_or_else(|| panic!("{pointer}"))
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect()
        };
        let pipeline = schema(PIPELINE);
        for (pointer, keys) in [
            ("", keys::ROOT),
            ("/$defs/on", keys::ON),
            ("/$defs/push", keys::PUSH),
            ("/$defs/job", keys::JOB),
            ("/$defs/resources", keys::RESOURCES),
            ("/$defs/launch", keys::LAUNCH),
            ("/$defs/benchmark", keys::BENCHMARK),
            ("/$defs/against", keys::AGAINST),
            ("/$defs/export", keys::EXPORT),
            ("/$defs/onnx", keys::ONNX),
            ("/$defs/tensorrt", keys::TENSORRT),
            ("/$defs/promote", keys::PROMOTE),
            ("/$defs/deploy", keys::DEPLOY),
        ] {
            assert_eq!(known(&pipeline, pointer), keys.iter().map(|k| (*k).to_owned()).collect(), "{pointer}");
        }
        let gate = schema(GATE);
        for (pointer, keys) in [
            ("", keys::GATE),
            ("/$defs/check", keys::CHECK),
            ("/$defs/metric_threshold", keys::METRIC_THRESHOLD),
            ("/$defs/non_inferiority", keys::NON_INFERIORITY),
            ("/$defs/latency_budget", keys::LATENCY_BUDGET),
            ("/$defs/onnx_parity", keys::ONNX_PARITY),
        ] {
            assert_eq!(known(&gate, pointer), keys.iter().map(|k| (*k).to_owned()).collect(), "{pointer}");
        }
    }
}
