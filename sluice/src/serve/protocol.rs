//! The tensors of the Open Inference Protocol, version 2: what a request must look like for a given model.
//! No I/O.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, Error as _, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Element types that can be served, by their protocol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp32,
    Fp64,
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
        })
    }
}

/// Values of a tensor in row-major order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Values {
    Bool(Vec<bool>),
    Uint8(Vec<u8>),
    Uint16(Vec<u16>),
    Uint32(Vec<u32>),
    Uint64(Vec<u64>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    /// Values that are not finite are written as `null`: JSON has no other way.
    Fp32(Vec<f32>),
    Fp64(Vec<f64>),
}

/// Name, type and shape of an input or output. A dimension of −1 may be anything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorMeta {
    pub name: String,
    pub datatype: Datatype,
    pub shape: Vec<i64>,
}

/// What goes in and what comes out.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelMeta {
    pub inputs: Vec<TensorMeta>,
    pub outputs: Vec<TensorMeta>,
}

/// A tensor that fits the input it is for.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<i64>,
    pub values: Values,
}

/// A request that fits the model.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedRequest {
    pub id: Option<String>,
    /// One tensor for each input of the model, in the model's order.
    pub inputs: Vec<Tensor>,
    /// Names of the wanted outputs, in the wanted order.
    pub outputs: Vec<String>,
}

/// What is wrong with a request, in one line that names the input or field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRequest(pub String);

#[derive(Deserialize)]
struct InferRequest {
    id: Option<String>,
    parameters: Option<Map<String, Value>>,
    inputs: Vec<RequestInput>,
    outputs: Option<Vec<RequestOutput>>,
}

#[derive(Deserialize)]
struct RequestInput {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    parameters: Option<Map<String, Value>>,
    data: Flat,
}

#[derive(Deserialize)]
struct RequestOutput {
    name: String,
    parameters: Option<Map<String, Value>>,
}

/// Parses a request and checks it against the model.
pub fn check(body: &[u8], model: &ModelMeta) -> Result<CheckedRequest, BadRequest> {
    let request: InferRequest = serde_json::from_slice(body).map_err(|error| BadRequest(format!("the request is not valid: {error}")))?;
    no_binary("the request", request.parameters.as_ref())?;
    let mut given = Vec::with_capacity(request.inputs.len());
    for input in request.inputs {
        let Some(position) = model.inputs.iter().position(|meta| meta.name == input.name) else {
            return bad(format!("input {:?} is not one of the model's: {}", input.name, names(&model.inputs)));
        };
        if given.iter().any(|(taken, _)| *taken == position) {
            return bad(format!("input {:?} is given twice", input.name));
        }
        no_binary(&format!("input {:?}", input.name), input.parameters.as_ref())?;
        given.push((position, check_input(input, &model.inputs[position])?));
    }
    if let Some(missing) = (0..model.inputs.len()).find(|wanted| given.iter().all(|(position, _)| position != wanted)) {
        return bad(format!("input {:?} is missing", model.inputs[missing].name));
    }
    given.sort_by_key(|(position, _)| *position);

    let mut outputs = Vec::new();
    for output in request.outputs.unwrap_or_default() {
        if !model.outputs.iter().any(|meta| meta.name == output.name) {
            return bad(format!("output {:?} is not one of the model's: {}", output.name, names(&model.outputs)));
        }
        if outputs.contains(&output.name) {
            return bad(format!("output {:?} is asked for twice", output.name));
        }
        no_binary(&format!("output {:?}", output.name), output.parameters.as_ref())?;
        outputs.push(output.name);
    }
    if outputs.is_empty() {
        outputs = model.outputs.iter().map(|meta| meta.name.clone()).collect();
    }
    Ok(CheckedRequest { id: request.id, inputs: given.into_iter().map(|(_, tensor)| tensor).collect(), outputs })
}

fn check_input(input: RequestInput, meta: &TensorMeta) -> Result<Tensor, BadRequest> {
    let RequestInput { name, shape, datatype, data, .. } = input;
    if datatype != meta.datatype.to_string() {
        return bad(format!("input {name:?} has datatype {datatype:?}, the model takes {}", meta.datatype));
    }
    let fits = shape.len() == meta.shape.len() && shape.iter().zip(&meta.shape).all(|(given, wanted)| *wanted == -1 || given == wanted);
    if shape.iter().any(|dimension| *dimension < 0) || !fits {
        return bad(format!("input {name:?} has shape {shape:?}, the model takes {:?} (-1: any size)", meta.shape));
    }
    let count = shape.iter().try_fold(1_i64, |product, dimension| product.checked_mul(*dimension));
    if count != i64::try_from(data.values.len()).ok() {
        let wanted = count.map_or_else(|| "more than fit in memory".to_owned(), |count| count.to_string());
        return bad(format!("input {name:?} has {} values in data, its shape {shape:?} needs {wanted}", data.values.len()));
    }
    let nested: Option<Vec<i64>> = data.dimensions.iter().map(|length| i64::try_from(*length).ok()).collect();
    if data.dimensions.len() > 1 && nested.as_ref() != Some(&shape) {
        return bad(format!("input {name:?} has data nested as {:?}, its shape is {shape:?}", data.dimensions));
    }
    let values = data.values.convert(meta.datatype).map_err(|problem| BadRequest(format!("input {name:?}: {problem}")))?;
    Ok(Tensor { name, shape, values })
}

fn no_binary(place: &str, parameters: Option<&Map<String, Value>>) -> Result<(), BadRequest> {
    let asked = |key: &str| parameters.and_then(|parameters| parameters.get(key));
    if asked("binary_data_size").is_some() || asked("binary_data").or_else(|| asked("binary_data_output")) == Some(&Value::Bool(true)) {
        return bad(format!("{place}: binary tensors are not supported, send and ask for JSON data"));
    }
    Ok(())
}

fn bad<T>(message: String) -> Result<T, BadRequest> {
    Err(BadRequest(message))
}

fn names(tensors: &[TensorMeta]) -> String {
    tensors.iter().map(|meta| format!("{:?}", meta.name)).collect::<Vec<_>>().join(", ")
}

/// A number or truth value of JSON; small, because a request has many.
#[derive(Clone, Copy)]
enum Scalar {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

/// `data` of a request: flat, or nested as its shape says.
struct Flat {
    values: Scalars,
    /// Length at each depth of nesting; one entry when flat.
    dimensions: Vec<usize>,
}

#[derive(Default)]
struct Scalars(Vec<Scalar>);

impl Scalars {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn convert(self, datatype: Datatype) -> Result<Values, String> {
        fn integers<T: TryFrom<i128>>(scalars: Vec<Scalar>, datatype: Datatype) -> Result<Vec<T>, String> {
            let convert = |scalar| match scalar {
                Scalar::Unsigned(value) => T::try_from(i128::from(value)).ok(),
                Scalar::Signed(value) => T::try_from(i128::from(value)).ok(),
                Scalar::Bool(_) | Scalar::Float(_) => None,
            };
            scalars.into_iter().map(|scalar| convert(scalar).ok_or_else(|| format!("{scalar} is not an {datatype}"))).collect()
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of JSON becomes the nearest float, whatever its notation")]
        fn floats(scalars: Vec<Scalar>, datatype: Datatype, largest: f64) -> Result<Vec<f64>, String> {
            let convert = |scalar| match scalar {
                Scalar::Unsigned(value) => Some(value as f64),
                Scalar::Signed(value) => Some(value as f64),
                Scalar::Float(value) => Some(value),
                Scalar::Bool(_) => None,
            };
            let fits = |value: &f64| value.abs() <= largest;
            scalars.into_iter().map(|scalar| convert(scalar).filter(fits).ok_or_else(|| format!("{scalar} is not an {datatype}"))).collect()
        }
        let scalars = self.0;
        Ok(match datatype {
            Datatype::Bool => {
                let convert = |scalar| match scalar {
                    Scalar::Bool(value) => Ok(value),
                    other => Err(format!("{other} is not a {datatype}")),
                };
                Values::Bool(scalars.into_iter().map(convert).collect::<Result<_, _>>()?)
            }
            Datatype::Uint8 => Values::Uint8(integers(scalars, datatype)?),
            Datatype::Uint16 => Values::Uint16(integers(scalars, datatype)?),
            Datatype::Uint32 => Values::Uint32(integers(scalars, datatype)?),
            Datatype::Uint64 => Values::Uint64(integers(scalars, datatype)?),
            Datatype::Int8 => Values::Int8(integers(scalars, datatype)?),
            Datatype::Int16 => Values::Int16(integers(scalars, datatype)?),
            Datatype::Int32 => Values::Int32(integers(scalars, datatype)?),
            Datatype::Int64 => Values::Int64(integers(scalars, datatype)?),
            #[expect(clippy::cast_possible_truncation, reason = "checked to be in range; precision is what FP32 has")]
            Datatype::Fp32 => Values::Fp32(floats(scalars, datatype, f64::from(f32::MAX))?.into_iter().map(|value| value as f32).collect()),
            Datatype::Fp64 => Values::Fp64(floats(scalars, datatype, f64::MAX)?),
        })
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut flat = Self { values: Scalars::default(), dimensions: Vec::new() };
        let mut leaf_depth = None;
        deserializer.deserialize_any(Level { flat: &mut flat, leaf_depth: &mut leaf_depth, depth: 0 })?;
        if leaf_depth == Some(0) {
            return Err(D::Error::custom("data must be an array"));
        }
        Ok(flat)
    }
}

/// One element of nested data. All numbers lie at one depth, and arrays at one depth have one length.
struct Level<'a> {
    flat: &'a mut Flat,
    leaf_depth: &'a mut Option<usize>,
    depth: usize,
}

impl Level<'_> {
    fn leaf<E: serde::de::Error>(self, scalar: Scalar) -> Result<(), E> {
        if *self.leaf_depth.get_or_insert(self.depth) != self.depth || self.flat.dimensions.len() > self.depth {
            return Err(E::custom("data mixes numbers and arrays"));
        }
        self.flat.values.0.push(scalar);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, truth values, or arrays of them in data")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.leaf(Scalar::Bool(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.leaf(Scalar::Unsigned(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.leaf(Scalar::Signed(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.leaf(Scalar::Float(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        if self.leaf_depth.is_some_and(|leaf| leaf <= self.depth) {
            return Err(A::Error::custom("data mixes numbers and arrays"));
        }
        let known = self.flat.dimensions.get(self.depth).copied();
        if known.is_none() {
            // The length is known at the end of this array, but deeper ones come before that.
            self.flat.dimensions.push(usize::MAX);
        }
        let mut length = 0_usize;
        while sequence
            .next_element_seed(Level { flat: &mut *self.flat, leaf_depth: &mut *self.leaf_depth, depth: self.depth + 1 })?
            .is_some()
        {
            length += 1;
        }
        match known {
            Some(expected) if expected != length => Err(A::Error::custom(format!("data is ragged: arrays of {expected} and {length}"))),
            Some(_) => Ok(()),
            None => {
                self.flat.dimensions[self.depth] = length;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ModelMeta {
        let tensor = |name: &str, datatype, shape: &[i64]| TensorMeta { name: name.to_owned(), datatype, shape: shape.to_vec() };
        ModelMeta {
            inputs: vec![tensor("x", Datatype::Fp32, &[-1, 2]), tensor("mask", Datatype::Bool, &[-1])],
            outputs: vec![tensor("y", Datatype::Fp32, &[-1, 3]), tensor("best", Datatype::Int64, &[-1])],
        }
    }

    const MASK: &str = r#"{"name": "mask", "shape": [1], "datatype": "BOOL", "data": [true]}"#;

    fn with_x(x: &str) -> String {
        format!(r#"{{"inputs": [{MASK}, {x}]}}"#)
    }

    fn refusal(body: &str) -> String {
        check(body.as_bytes(), &model()).expect_err(body).0
    }

    #[test]
    fn good_request_gives_tensors_in_model_order() {
        let body = r#"{"id": "7", "outputs": [{"name": "best"}], "inputs": [
            {"name": "mask", "shape": [2], "datatype": "BOOL", "data": [true, false]},
            {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [-3, 1e3]]}]}"#;
        let request = check(body.as_bytes(), &model()).expect("valid");
        assert_eq!(request.id.as_deref(), Some("7"));
        assert_eq!(request.outputs, ["best"]);
        assert_eq!(request.inputs[0].values, Values::Fp32(vec![1.0, 2.5, -3.0, 1000.0]));
        assert_eq!(request.inputs[1].values, Values::Bool(vec![true, false]));
    }

    #[test]
    fn outputs_default_to_all() {
        let request =
            check(with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}"#).as_bytes(), &model()).expect("valid");
        assert_eq!(request.outputs, ["y", "best"]);
    }

    #[test]
    fn bad_inputs_are_named() {
        let cases = [
            ("{", "not valid"),
            ("{}", "`inputs`"),
            (r#"{"inputs": []}"#, "input \"x\" is missing"),
            (&format!(r#"{{"inputs": [{MASK}]}}"#), "input \"x\" is missing"),
            (&format!(r#"{{"inputs": [{MASK}, {MASK}]}}"#), "input \"mask\" is given twice"),
            (
                &with_x(r#"{"name": "z", "shape": [1], "datatype": "FP32", "data": [1]}"#),
                "input \"z\" is not one of the model's: \"x\", \"mask\"",
            ),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32"}"#), "`data`"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}"#), "input \"x\" has datatype \"INT64\""),
            (&with_x(r#"{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}"#), "input \"x\" has shape [2]"),
            (&with_x(r#"{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}"#), "input \"x\" has shape [1, 3]"),
            (&with_x(r#"{"name": "x", "shape": [-1, 2], "datatype": "FP32", "data": [1, 2]}"#), "input \"x\" has shape [-1, 2]"),
            (&with_x(r#"{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2]}"#), "input \"x\" has 2 values in data"),
            (
                &with_x(r#"{"name": "x", "shape": [9223372036854775807, 2], "datatype": "FP32", "data": [1, 2]}"#),
                "input \"x\" has 2 values in data",
            ),
            (
                &with_x(r#"{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2, 3, 4]]}"#),
                "input \"x\" has data nested as [1, 4]",
            ),
            (&with_x(r#"{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3]]}"#), "ragged"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, [2]]}"#), "mixes"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1], 2]}"#), "mixes"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": 3}"#), "data must be an array"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": ["a", 2]}"#), "in data"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [null, 2]}"#), "in data"),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1e39, 2]}"#), "input \"x\""),
            (&with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [true, 2]}"#), "input \"x\": true is not an FP32"),
            (
                &with_x(r#"{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2], "parameters": {"binary_data_size": 8}}"#),
                "binary tensors are not supported",
            ),
            (
                &format!(
                    r#"{{"outputs": [{{"name": "z"}}], "inputs": [{MASK}, {{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}}]}}"#
                ),
                "output \"z\" is not one of the model's",
            ),
        ];
        for (body, expected) in cases {
            let found = refusal(body);
            assert!(found.contains(expected), "{body}\n  said: {found}\n  not:  {expected}");
        }
    }

    #[test]
    fn integers_keep_every_bit_and_refuse_what_does_not_fit() {
        let model =
            ModelMeta { inputs: vec![TensorMeta { name: "n".to_owned(), datatype: Datatype::Int64, shape: vec![-1] }], outputs: vec![] };
        let body = |data: &str| format!(r#"{{"inputs": [{{"name": "n", "shape": [1], "datatype": "INT64", "data": [{data}]}}]}}"#);
        let request = check(body("9007199254740993").as_bytes(), &model).expect("valid");
        assert_eq!(request.inputs[0].values, Values::Int64(vec![9_007_199_254_740_993]));
        for data in ["9223372036854775808", "1.5", "true"] {
            assert_eq!(check(body(data).as_bytes(), &model).expect_err(data).0, format!("input \"n\": {data} is not an INT64"));
        }
    }

    #[test]
    fn empty_data_and_scalars_are_tensors_too() {
        let model = ModelMeta {
            inputs: vec![TensorMeta { name: "n".to_owned(), datatype: Datatype::Int32, shape: vec![-1, -1] }],
            outputs: vec![],
        };
        let body = r#"{"inputs": [{"name": "n", "shape": [0, 4], "datatype": "INT32", "data": []}]}"#;
        assert_eq!(check(body.as_bytes(), &model).expect("valid").inputs[0].values, Values::Int32(vec![]));
    }

    #[test]
    fn values_that_are_not_finite_become_null() {
        assert_eq!(serde_json::to_string(&Values::Fp32(vec![1.5, f32::NAN])).expect("serialises"), "[1.5,null]");
    }
}
