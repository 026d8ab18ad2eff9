//! The JSON documents that commands print and write: their names, their versions and their JSON Schemas.

use serde::Serialize;
use serde_json::Value;

use crate::command::ending::Failure;

/// A kind of JSON document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    /// Goes up when a field goes away, changes its meaning or is no longer always there.
    pub(crate) version: u32,
    /// What makes the document, as it is typed after `gatework`.
    pub(crate) made_by: &'static str,
    text: &'static str,
}

/// What has a schema, and can be printed or written for that reason.
pub(crate) trait Document: Serialize {
    const SCHEMA: Schema;
}

/// A document with the name of its schema in front.
#[derive(Serialize)]
pub(crate) struct Versioned<'a, D> {
    schema: String,
    #[serde(flatten)]
    document: &'a D,
}

impl<'a, D: Document> Versioned<'a, D> {
    pub(crate) fn new(document: &'a D) -> Self {
        Self { schema: D::SCHEMA.id(), document }
    }
}

macro_rules! schemas {
    ($($constant:ident = $name:literal $version:literal: $made_by:literal;)*) => {
        $(pub(crate) const $constant: Schema = Schema {
            name: $name,
            version: $version,
            made_by: $made_by,
            text: include_str!(concat!("../../schemas/", $name, ".json")),
        };)*
        pub(crate) const SCHEMAS: &[Schema] = &[$($constant),*];
    };
}

schemas! {
    DOCTOR = "doctor" 1: "doctor";
    TOUR = "tour" 1: "tour";
    CHECK = "check" 1: "check";
    CHECK_KNOWN = "check-known" 1: "check --known";
    ZOO = "zoo" 1: "zoo";
    SCHEMA = "schema" 1: "schema";
    MAN = "man" 1: "man";
    LAB_LIST = "lab-list" 1: "lab list";
    LAB_GATE = "lab-gate" 1: "lab gate";
    LAB_BENCH = "lab-bench" 1: "lab bench";
    LAB_TUNE = "lab-tune" 1: "lab tune";
    TUNING = "tuning" 1: "lab tune --out FILE, the file";
    LAB_PROFILE = "lab-profile" 1: "lab profile";
    LAB_COMPARE = "lab-compare" 1: "lab compare";
    LAB_PICTURE = "lab-picture" 1: "lab picture";
    LAB_REPORT = "lab-report" 1: "lab report";
    LAB_TABLE = "lab-table" 1: "lab table";
    LAB_RECORDS = "lab-records" 1: "lab records";
    LAB_RECORDS_CHECK = "lab-records-check" 1: "lab records --check";
    ATTENTION_RUN = "attention-run" 1: "attention run";
    ATTENTION_DEMO = "attention-demo" 1: "attention run --demo";
    ATTENTION_BENCH = "attention-bench" 1: "attention bench";
    PRIVATE_CERT = "private-cert" 1: "private cert";
    PRIVATE_DESCRIBE = "private-describe" 1: "private describe";
    PRIVATE_DEAL = "private-deal" 1: "private deal";
    PRIVATE_SERVE = "private-serve" 1: "private serve";
    PRIVATE_RUN = "private-run" 1: "private run";
    PRIVATE_CHECK = "private-check" 1: "private check";
    PRIVATE_COST = "private-cost" 1: "private cost";
    PRIVATE_COST_SESSION = "private-cost-session" 1: "private cost --public FILE";
    PRIVATE_BENCH = "private-bench" 1: "private bench";
    PRIVATE_BENCH_DEAL = "private-bench-deal" 1: "private bench --deal";
    PRIVATE_BENCH_LINK = "private-bench-link" 1: "private bench --link";
    STARK_PROVE = "stark-prove" 1: "stark prove";
    PROOF = "proof" 1: "stark prove --out FILE, the file";
    STARK_VERIFY = "stark-verify" 1: "stark verify";
    STARK_BENCH = "stark-bench" 1: "stark bench";
    TRAIN_RUN = "train-run" 1: "train run";
    TRAIN_CONFIG = "train-config" 1: "train run --show-config";
    TRAIN_PLAN = "train-plan" 1: "train run --plan";
    TRAIN_RESUME = "train-resume" 1: "train resume";
    TRAIN_SWEEP = "train-sweep" 1: "train sweep";
    TRAIN_COMPARE = "train-compare" 1: "train compare";
    TRAIN_FORECAST = "train-forecast" 1: "train forecast";
    TRAIN_FETCH_MNIST = "train-fetch-mnist" 1: "train fetch mnist";
    TRAIN_FETCH_TEXT = "train-fetch-text" 1: "train fetch text";
    TRAIN_TEXT = "train-text" 1: "train fetch text, the file text.json";
    // These two had a field `version` of their own before there were schemas, and keep it.
    RECORD = "record" 2: "lab gate and every bench, a line of a file of records";
    PRIVATE_MODEL = "private-model" 2: "private describe --out FILE, the file";
}

impl Schema {
    /// As documents name it: `gatework/tour/1`.
    pub(crate) fn id(&self) -> String {
        format!("gatework/{}/{}", self.name, self.version)
    }

    /// The JSON Schema, with those it refers to inside, so that one file is enough to validate with.
    pub(crate) fn bundle(&self) -> Result<Value, Failure> {
        let mut bundle = self.parsed()?;
        for other in SCHEMAS.iter().filter(|other| other.name != self.name) {
            if self.text.contains(&format!("\"{}\"", other.urn())) {
                bundle["$defs"][other.name] = other.parsed()?;
            }
        }
        Ok(bundle)
    }

    fn urn(&self) -> String {
        format!("urn:gatework:{}:{}", self.name, self.version)
    }

    fn parsed(&self) -> Result<Value, Failure> {
        serde_json::from_str(self.text)
            .map_err(|error| Failure::device(format!("the schema {} is broken: {error}", self.name)))
    }

    /// Says what is wrong with a file that was written as another kind of document, or by a later version.
    pub(crate) fn require(&self, file: &[u8]) -> Result<(), String> {
        #[derive(serde::Deserialize)]
        struct Named {
            schema: Option<String>,
        }
        let found = serde_json::from_slice::<Named>(file).map_err(|error| error.to_string())?.schema;
        match found {
            Some(schema) if schema == self.id() => Ok(()),
            Some(schema) => Err(format!("its schema is '{schema}', and '{}' is read", self.id())),
            None => Err(format!("it names no schema, and '{}' is read", self.id())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_states_its_own_name_and_version() {
        for schema in SCHEMAS {
            let text = schema.parsed().unwrap();
            assert_eq!(text["$schema"], "https://json-schema.org/draft/2020-12/schema", "{}", schema.name);
            assert_eq!(text["$id"], schema.urn().as_str());
            let stated = &text["properties"]["schema"]["const"];
            match text["properties"].get("version") {
                // Older records are read, too.
                Some(version) => {
                    let newest = version.get("const").or(version.get("maximum"));
                    assert_eq!(newest, Some(&schema.version.into()), "{}", schema.name);
                }
                None => assert_eq!(stated, schema.id().as_str(), "{}", schema.name),
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(SCHEMAS.iter().any(|schema| schema.name == name), "{name}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_refused_by_name() {
        assert_eq!(PROOF.require(br#"{"schema": "gatework/proof/1", "more": 1}"#), Ok(()));
        let refused = PROOF.require(br#"{"schema": "gatework/proof/2"}"#).unwrap_err();
        assert_eq!(refused, "its schema is 'gatework/proof/2', and 'gatework/proof/1' is read");
        assert!(PROOF.require(b"{}").unwrap_err().contains("names no schema"));
    }
}
