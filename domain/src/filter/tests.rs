use super::*;

const FREE_TEXT: KeyRule = KeyRule { names: &[], kind: Kind::Text, operators: TEXT_OR_NULL };
const GRAMMAR: Grammar = Grammar {
    double_quotes: true,
    entities: &[
        EntityRule {
            entity: Entity::Metric,
            names: &["metric", "metrics"],
            keys: Keys::Free(KeyRule { names: &[], kind: Kind::Number, operators: NUMERIC }),
        },
        EntityRule { entity: Entity::Param, names: &["param", "params"], keys: Keys::Free(FREE_TEXT) },
        EntityRule { entity: Entity::Tag, names: &["tag", "tags"], keys: Keys::Free(FREE_TEXT) },
        EntityRule {
            entity: Entity::Attribute,
            names: &["attribute", "attributes", "run"],
            keys: Keys::Named(&[
                KeyRule { names: &["run_id"], kind: Kind::Text, operators: TEXT_OR_LIST },
                KeyRule { names: &["run_name", "run name", "Run name"], kind: Kind::Text, operators: TEXT },
                KeyRule { names: &["start_time", "created"], kind: Kind::Integer, operators: NUMERIC },
            ]),
        },
    ],
};

fn one(filter: &str) -> Comparison {
    let mut comparisons = GRAMMAR.parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    assert_eq!(comparisons.len(), 1, "{filter}");
    comparisons.remove(0)
}

fn text(entity: Entity, key: &str, operator: Operator, value: &str) -> Comparison {
    Comparison { entity, key: key.to_owned(), operator, value: Literal::Text(value.to_owned()) }
}

#[test]
fn left_sides() {
    use Entity::{Attribute, Param, Tag};
    assert_eq!(one("params.a.b = 'x'"), text(Param, "a.b", Operator::Eq, "x"));
    assert_eq!(one("param.`a b`='x'"), text(Param, "a b", Operator::Eq, "x"));
    assert_eq!(one("params.\"a = b\" = 'x'"), text(Param, "a = b", Operator::Eq, "x"));
    assert_eq!(one("tags.mlflow.runName LIKE '%a_'"), text(Tag, "mlflow.runName", Operator::Like, "%a_"));
    assert_eq!(one("`tags`.`x` = 'y'"), text(Tag, "x", Operator::Eq, "y"));
    assert_eq!(one("run name = \"it's\""), text(Attribute, "run_name", Operator::Eq, "it's"));
    assert_eq!(one("attributes.run_name iLike 'A'"), text(Attribute, "run_name", Operator::ILike, "A"));
    assert_eq!(one("run.run_id != 'a'"), text(Attribute, "run_id", Operator::Ne, "a"));
}

#[test]
fn values() {
    assert_eq!(one("metrics.m >= -3").value, Literal::Int(-3));
    assert_eq!(one("metrics.m<1e-3").value, Literal::Float(1e-3));
    assert_eq!(one("created > 5").key, "start_time");
    assert_eq!(one("run_id IN ('a', \"b\")").value, Literal::List(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(one("run_id not  in ('a')").operator, Operator::NotIn);
    assert_eq!(one("params.p IS  NOT null").operator, Operator::IsNotNull);
    assert_eq!(one("params.p = 'a AND b'").value, Literal::Text("a AND b".to_owned()));
}

#[test]
fn clauses_are_anded() {
    assert_eq!(GRAMMAR.parse("").unwrap(), []);
    assert_eq!(GRAMMAR.parse("metrics.a > 1 and params.b = 'x' AND tags.c != 'y' AND").unwrap().len(), 3);
    // no quadratic surprise, and a limit
    let many = vec!["metrics.a > 1"; 101].join(" AND ");
    assert!(GRAMMAR.parse(&many).unwrap_err().0.contains("more than 100"));
}

#[test]
fn what_is_wrong_is_said() {
    for (filter, part) in [
        ("   ", "Could not be parsed"),
        ("metrics.a > 1 OR metrics.b > 2", "Invalid clause(s) in filter string: 'OR'"),
        ("metrics.a", "Invalid clause(s)"),
        ("metrics.a BETWEEN 1", "Invalid clause(s)"),
        ("metrics.a >", "Invalid clause(s)"),
        ("metrics. > 1", "A key must follow the dot"),
        ("metrics.a > '0'", "Expected numeric value type for metric. Found '0'"),
        ("metrics.a LIKE 'x'", "Invalid comparator 'LIKE'"),
        ("metrics.a == 1", "Invalid comparator '=='"),
        ("params.p = 5", "Expected a quoted string value for parameter (e.g. 'my-value'). Got value 5"),
        ("params.p = V0", "used for string value V0"),
        ("params.p > 'a'", "Invalid comparator '>'"),
        ("params.p = 'a", "Invalid clause(s)"),
        ("params.p LIKE 'a\\'", "ends in an escape character"),
        ("foo.p = 'a'", "Invalid entity type 'foo'. Valid values are ['metric', 'parameter', 'tag', 'attribute']"),
        ("m = 'a'", "Invalid attribute key 'm' specified. Valid keys are"),
        ("run_name IN ('a')", "Only ['run_id'] attributes support comparison with a list"),
        ("run_id IN ()", "empty list"),
        ("run_id IN ('a' 'b')", "ill-formed list"),
        ("run_id IN ('a', 5)", "different type in list: ('a', 5)"),
        ("run_id IN 'a'", "list of string values"),
        ("run_id = ('a')", "got a list"),
        ("start_time > 1.5", "Invalid value for numeric attribute 'start_time': '1.5'"),
        ("start_time > '1'", "Expected numeric value type for numeric attribute: start_time"),
        ("start_time IS NULL", "only supported for tags and params"),
        ("metrics.a > 1; DROP", "multiple expression"),
        ("metrics.a > 1;", "Invalid clause(s) in filter string: ';'"),
        ("1 = metrics.a", "Invalid attribute key '1'"),
        ("(metrics.a > 1)", "Invalid clause(s)"),
        ("metrics.a > nan", "Expected numeric"),
    ] {
        let error = GRAMMAR.parse(filter).expect_err(filter).0;
        assert!(error.contains(part), "{filter}: {error}");
    }
}

#[test]
fn orders() {
    let items: Vec<String> = ["metrics.`a b` DESC", "params.x", "start_time asc", "Run name desc"].map(str::to_owned).to_vec();
    let orders = GRAMMAR.parse_order(&items).unwrap();
    assert_eq!(orders[0], OrderBy { entity: Entity::Metric, key: "a b".to_owned(), descending: true });
    assert_eq!(orders[3], OrderBy { entity: Entity::Attribute, key: "run_name".to_owned(), descending: true });
    for (bad, part) in [
        ("metrics.m FOO", "Invalid ordering key in order_by clause 'metrics.m FOO'."),
        (" ", "Could not be parsed"),
        ("bogus", "Invalid attribute key"),
    ] {
        assert!(GRAMMAR.parse_order(&[bad.to_owned()]).unwrap_err().0.contains(part), "{bad}");
    }
    let twice = ["created".to_owned(), "start_time DESC".to_owned()];
    assert!(GRAMMAR.parse_order(&twice).unwrap_err().0.contains("duplicate fields"));
}

proptest::proptest! {
    #[test]
    fn no_input_panics(filter in "\\PC{0,60}") {
        let _ = GRAMMAR.parse(&filter);
        let _ = GRAMMAR.parse_order(&[filter]);
    }

    #[test]
    fn near_misses_do_not_panic(filter in "(metrics|params|run_id|tags|`| |\\.|=|!=|<|IN|\\(|\\)|'|\"|,|5|x|AND|IS|NOT|NULL|;|é){0,14}") {
        let _ = GRAMMAR.parse(&filter);
    }

    #[test]
    fn quoted_values_come_back_unchanged(value in "[^'\0]{0,40}", key in "[a-zA-Z0-9_/.]{1,20}") {
        let filter = format!("params.{key} = '{value}'");
        proptest::prop_assert_eq!(one(&filter), text(Entity::Param, &key, Operator::Eq, &value));
    }

    #[test]
    fn numbers_come_back_unchanged(number in proptest::num::f64::NORMAL) {
        let filter = format!("metrics.m > {number:e}");
        proptest::prop_assert_eq!(one(&filter).value.as_f64(), Some(number));
    }
}
