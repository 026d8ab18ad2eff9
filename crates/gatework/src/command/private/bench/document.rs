//! What was measured, as text, as JSON and as a record.

use std::time::Duration;

use gatework_gpu::Target;
use gatework_lab::MeasuredRecord;
use gatework_private::model::PublicModel;
use gatework_private::roles::{Counted, PartTime};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::command::ending::Failure;
use crate::command::output::table;
use crate::command::schema;

use super::link::LinkTimes;
use super::{BenchOptions, Request};

/// What was seen of a session.
pub(super) struct Session {
    dealing: Duration,
    set_up: Duration,
    requests: Vec<Request>,
}

impl Session {
    pub(super) fn new(set_up: Duration) -> Self {
        Self { dealing: Duration::ZERO, set_up, requests: Vec::new() }
    }

    pub(super) fn dealt_in(self, dealing: Duration) -> Self {
        Self { dealing, ..self }
    }

    pub(super) fn add(&mut self, request: Request) {
        self.requests.push(request);
    }
}

/// Where a party's time went in a request: the median over all, each on its own.
#[derive(Serialize)]
struct Shares {
    evaluate_ms: f64,
    wait_ms: f64,
    /// Queueing or computing gates, until messages are on the host, handing them over, opening what came.
    gates_ms: f64,
    messages_ms: f64,
    hand_over_ms: f64,
    opening_ms: f64,
    /// Making keys ready for the next round.
    ahead_ms: f64,
    /// Beside the others, on threads of the link.
    send_ms: f64,
}

/// Where the client's time went in a part of the model: the median over all requests, each on its own.
#[derive(Serialize)]
struct PartShares {
    part: String,
    ms: f64,
    gates_ms: f64,
    messages_ms: f64,
    hand_over_ms: f64,
    wait_ms: f64,
    opening_ms: f64,
    ahead_ms: f64,
}

#[derive(Serialize)]
pub(super) struct Document {
    model: String,
    seed: u64,
    tokens: usize,
    batch: usize,
    keys: &'static str,
    ring_bits: u32,
    clamps: usize,
    /// Whether every product is truncated faithfully.
    faithful: bool,
    client_device: String,
    server_device: String,
    threads: usize,
    repeats: usize,
    warm_up: usize,
    /// Whether every result is that of the clear evaluation, bit for bit.
    pub(super) equal_in_clear: bool,
    median_ms: f64,
    worst_ms: f64,
    fastest_ms: f64,
    online_ms: Vec<f64>,
    /// Requests that warmed up, which count for nothing.
    warm_up_ms: Vec<f64>,
    client: Shares,
    server: Shares,
    rounds: u64,
    server_sent_bytes: u64,
    client_sent_bytes: u64,
    server_key_bytes: u64,
    client_key_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_device_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_device_planned_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_device_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_device_planned_bytes: Option<u64>,
    /// Whether the client's card was shared through the multi-process service.
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_process_service: Option<bool>,
    /// The link on its own.
    #[serde(flatten)]
    link: Option<LinkTimes>,
    /// Masking and moving the weights, once a session.
    set_up_ms: f64,
    /// Dealing for a session.
    deal_ms: f64,
    /// The model's parts one after the other.
    parts: Vec<PartShares>,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_BENCH;
}

impl Document {
    pub(super) fn new(
        options: &BenchOptions,
        public: &PublicModel,
        target: &Target,
        link: Option<LinkTimes>,
        sessions: Vec<Session>,
        served: &Value,
    ) -> Result<Self, Failure> {
        let (warm, timed) = sessions.split_at(options.warm_up_sessions().min(sessions.len()));
        let all = || sessions.iter().flat_map(|session| &session.requests);
        let requests: Vec<&Request> = timed.iter().flat_map(|session| &session.requests).collect();
        let Some(last) = requests.last() else {
            return Err(Failure::input("nothing was measured".into()));
        };
        let online_ms: Vec<f64> = requests.iter().map(|request| milliseconds(request.time)).collect();
        let share = |of: fn(&Counted) -> Duration| {
            let of = |request: &&Request| {
                milliseconds(of(&request.after.inference).saturating_sub(of(&request.before.inference)))
            };
            median(requests.iter().map(of).collect())
        };
        let (before, after) = (&last.before.inference, &last.after.inference);
        let sent = |party: usize| after.traffic.bytes[party] - before.traffic.bytes[party];
        let clients = served["clients"].as_array().map_or(&[][..], Vec::as_slice);
        let clients = clients.get(warm.len()..).unwrap_or_default();
        let server = Served { clients };
        Ok(Self {
            model: options.weights.name(),
            seed: options.weights.seed,
            tokens: options.tokens.get(),
            batch: options.batch.get(),
            keys: options.keys.name(),
            ring_bits: public.format().ring.bits(),
            clamps: public.clamps(),
            faithful: options.faithful,
            client_device: target.id().to_owned(),
            server_device: served["device"].as_str().unwrap_or_default().to_owned(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            repeats: requests.len(),
            warm_up: options.warm_up,
            equal_in_clear: all().all(|request| request.equal),
            median_ms: median(online_ms.clone()),
            worst_ms: online_ms.iter().copied().fold(0.0, f64::max),
            fastest_ms: online_ms.iter().copied().fold(f64::INFINITY, f64::min),
            online_ms,
            warm_up_ms: warm
                .iter()
                .flat_map(|session| &session.requests)
                .map(|request| milliseconds(request.time))
                .collect(),
            client: Shares {
                evaluate_ms: share(|counted| counted.evaluating),
                wait_ms: share(|counted| counted.waiting),
                gates_ms: share(|counted| counted.stages.gates),
                messages_ms: share(|counted| counted.stages.messages),
                hand_over_ms: share(|counted| counted.stages.sending),
                opening_ms: share(|counted| counted.stages.opening),
                ahead_ms: share(|counted| counted.stages.ahead),
                send_ms: share(|counted| counted.sending),
            },
            server: server.shares(options.batch.get()),
            rounds: after.traffic.frames - before.traffic.frames,
            server_sent_bytes: sent(0),
            client_sent_bytes: sent(1),
            server_key_bytes: server.key_bytes(options.batch.get()),
            client_key_bytes: after.key_bytes - before.key_bytes,
            client_device_peak_bytes: requests.iter().filter_map(|request| request.device_peak).max(),
            client_device_planned_bytes: last.after.planned_device_bytes,
            server_device_peak_bytes: server.most("peak_device_bytes"),
            server_device_planned_bytes: server.most("planned_device_bytes"),
            multi_process_service: target.device().map(|device| device.properties().multi_process_service),
            link,
            set_up_ms: median(timed.iter().map(|session| milliseconds(session.set_up)).collect()),
            deal_ms: median(timed.iter().map(|session| milliseconds(session.dealing)).collect()),
            parts: parts(&requests),
        })
    }

    /// The request as a row, and each part of it as one.
    pub(super) fn measured(&self) -> Result<MeasuredRecord, Failure> {
        let mut whole = object(self)?;
        for list in ["parts", "online_ms", "warm_up_ms"] {
            whole.remove(list);
        }
        for party in ["client", "server"] {
            if let Some(Value::Object(shares)) = whole.remove(party) {
                let named = shares.into_iter().map(|(name, value)| (format!("{party}_{name}"), value));
                whole.extend(named);
            }
        }
        whole.insert("kind".to_owned(), "request".into());
        let part = |part: &PartShares| -> Result<Map<String, Value>, Failure> {
            let named: [(&str, Value); 4] = [
                ("kind", "part".into()),
                ("model", self.model.as_str().into()),
                ("tokens", self.tokens.into()),
                ("keys", self.keys.into()),
            ];
            let mut row: Map<String, Value> =
                named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            row.extend(object(part)?);
            Ok(row)
        };
        let parts = self.parts.iter().map(part);
        let rows = std::iter::once(Ok(whole)).chain(parts).collect::<Result<_, Failure>>()?;
        let origin = format!(
            "gatework private bench, {} requests between two processes over loopback TLS on {} threads",
            self.repeats, self.threads
        );
        Ok(MeasuredRecord { origin, rows })
    }

    pub(super) fn text(&self) -> String {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let texts = if self.batch == 1 { String::new() } else { format!(", {} texts a request", self.batch) };
        let mut text = format!(
            "{}, {} tokens{texts}, a ring of {} bits, {} clamps{}; keys in {}\nclient on {}, server on {}, a process each, loopback TLS\n\n\
             online: {:.1} ms median, {:.1} ms worst of {} (warm-up: {})\n",
            self.model,
            self.tokens,
            self.ring_bits,
            self.clamps,
            if self.faithful { ", every truncation faithful" } else { "" },
            self.keys,
            self.client_device,
            self.server_device,
            self.median_ms,
            self.worst_ms,
            self.repeats,
            self.warm_up_ms.iter().map(|ms| format!("{ms:.1}")).collect::<Vec<_>>().join(", "),
        );
        for (party, shares) in [("client", &self.client), ("server", &self.server)] {
            text.push_str(&format!(
                "{party}: evaluating {:.1} ms (gates {:.1}, messages {:.1}, handing over {:.1}, opening {:.1}, keys ahead {:.1}), waiting {:.1} ms; sending {:.1} ms beside\n",
                shares.evaluate_ms,
                shares.gates_ms,
                shares.messages_ms,
                shares.hand_over_ms,
                shares.opening_ms,
                shares.ahead_ms,
                shares.wait_ms,
                shares.send_ms
            ));
        }
        text.push_str(&format!(
            "{} rounds, {:.1} MiB from the server, {:.1} MiB from the client\nkeys: {:.3} GiB of the server, {:.3} GiB of the client\n\
             before: dealing {:.2} s, masked weights {:.2} s a session\n",
            self.rounds,
            mib(self.server_sent_bytes),
            mib(self.client_sent_bytes),
            gib(self.server_key_bytes),
            gib(self.client_key_bytes),
            self.deal_ms / 1e3,
            self.set_up_ms / 1e3,
        ));
        let peaks = [
            ("client", self.client_device_peak_bytes, self.client_device_planned_bytes),
            ("server", self.server_device_peak_bytes, self.server_device_planned_bytes),
        ];
        for (party, peak, planned) in peaks {
            if let (Some(peak), Some(planned)) = (peak, planned) {
                text.push_str(&format!(
                    "most device memory of the {party}: {:.3} GiB, planned {:.3}\n",
                    gib(peak),
                    gib(planned)
                ));
            }
        }
        if let Some(link) = &self.link {
            text.push_str(&format!("{}\n", link.text()));
        }
        let mut rows = table([
            "part of the client",
            "ms",
            "gates",
            "messages",
            "handing over",
            "opening",
            "keys ahead",
            "waiting",
        ]);
        for part in &self.parts {
            let times = [
                part.ms,
                part.gates_ms,
                part.messages_ms,
                part.hand_over_ms,
                part.opening_ms,
                part.ahead_ms,
                part.wait_ms,
            ];
            rows.add_row(std::iter::once(part.part.clone()).chain(times.map(|ms| format!("{ms:.2}"))));
        }
        let equal = if self.equal_in_clear { "the same, bit for bit" } else { "SOMETHING ELSE" };
        format!("{text}\n{rows}\n\nthe clear evaluation gives {equal}")
    }
}

/// What the server said of the sessions that are timed.
struct Served<'a> {
    clients: &'a [Value],
}

impl Served<'_> {
    /// A figure of a request, the median over sessions.
    fn of_request(&self, name: &str, batch: usize) -> f64 {
        let each = |client: &Value| {
            let requests = client["inferences"].as_f64()? / batch as f64;
            let part = &client["inference"];
            Some(part[name].as_f64().or_else(|| part["stages"][name].as_f64())? / requests)
        };
        median(self.clients.iter().filter_map(each).collect())
    }

    fn shares(&self, batch: usize) -> Shares {
        let ms = |name: &str| self.of_request(name, batch) * 1e3;
        Shares {
            evaluate_ms: ms("evaluate_seconds"),
            wait_ms: ms("wait_seconds"),
            gates_ms: ms("gates"),
            messages_ms: ms("messages"),
            hand_over_ms: ms("sending"),
            opening_ms: ms("opening"),
            ahead_ms: ms("ahead"),
            send_ms: ms("send_seconds"),
        }
    }

    fn key_bytes(&self, batch: usize) -> u64 {
        self.of_request("key_bytes", batch) as u64
    }

    /// The largest of a figure over sessions.
    fn most(&self, name: &str) -> Option<u64> {
        self.clients.iter().filter_map(|client| client[name].as_u64()).max()
    }
}

/// The medians of each part.
fn parts(requests: &[&Request]) -> Vec<PartShares> {
    let Some(first) = requests.first() else { return Vec::new() };
    let shares = |(index, part): (usize, &PartTime)| {
        let ms = |of: fn(&PartTime) -> Duration| {
            let times = requests.iter().filter_map(|request| request.parts.get(index));
            median(times.map(|part| milliseconds(of(part))).collect())
        };
        PartShares {
            part: part.name.clone(),
            ms: ms(|part| part.wall),
            gates_ms: ms(|part| part.stages.gates),
            messages_ms: ms(|part| part.stages.messages),
            hand_over_ms: ms(|part| part.stages.sending),
            wait_ms: ms(|part| part.stages.waiting),
            opening_ms: ms(|part| part.stages.opening),
            ahead_ms: ms(|part| part.stages.ahead),
        }
    };
    first.parts.iter().enumerate().map(shares).collect()
}

/// Figures by name.
fn object(figures: &impl Serialize) -> Result<Map<String, Value>, Failure> {
    let unwritable =
        |error: serde_json::Error| Failure::device(format!("figures that JSON cannot hold: {error}"));
    match serde_json::to_value(figures).map_err(unwritable)? {
        Value::Object(named) => Ok(named),
        other => Err(Failure::device(format!("the figures are no JSON object: {other}"))),
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Zero of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
