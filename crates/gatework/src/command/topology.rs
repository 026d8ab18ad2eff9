//! How the cards of this machine are joined, and how fast.

use gatework_gpu::{Card, Device, Topology, topology};
use serde::Serialize;

use crate::command::output::table;

/// Bytes of a copy that is timed: many times what a copy costs to start.
const COPY_BYTES: usize = 256 << 20;

/// The cards, what joins them, and what copies between them reach.
#[derive(Serialize, Default)]
pub(crate) struct Joints {
    #[serde(flatten)]
    topology: Topology,
    /// Measured from each card to each other one; none on a machine with fewer than two.
    copies: Vec<Copies>,
}

/// What copies from one card to another reach.
#[derive(Serialize)]
struct Copies {
    from: usize,
    to: usize,
    #[serde(flatten)]
    speed: Speed,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Speed {
    Measured { bytes_per_second: f64 },
    Failed { reason: String },
}

impl Joints {
    /// Reads what the driver says and, where there are two cards, times copies. None without a driver.
    pub(crate) fn examine() -> Self {
        let topology = topology().unwrap_or_default();
        let copies = topology.links.iter().map(|link| Copies {
            from: link.from,
            to: link.to,
            speed: measure(link.from, link.to).unwrap_or_else(|reason| Speed::Failed { reason }),
        });
        let copies = copies.collect();
        Self { topology, copies }
    }

    /// A matrix of cards; `None` on a machine that has none.
    pub(crate) fn table(&self) -> Option<comfy_table::Table> {
        let cards = &self.topology.cards;
        if cards.is_empty() {
            return None;
        }
        let mut rows = table(["from \\ to"].into_iter().chain(cards.iter().map(|card| card.id.as_str())));
        for (from, card) in cards.iter().enumerate() {
            let cells = (0..cards.len()).map(|to| if to == from { own(card) } else { self.cell(from, to) });
            rows.add_row([card.id.clone()].into_iter().chain(cells).collect::<Vec<_>>());
        }
        Some(rows)
    }

    fn cell(&self, from: usize, to: usize) -> String {
        let Some(link) = self.topology.links.iter().find(|link| (link.from, link.to) == (from, to)) else {
            return String::new();
        };
        let mut lines = vec![match link.access {
            true => format!("peer access, rank {}", link.performance_rank),
            false => "copies through the host".to_owned(),
        }];
        if link.atomics {
            lines.push("atomics".to_owned());
        }
        if let Some(count @ 1..) = link.nvlinks {
            lines.push(format!("{count} NVLinks"));
        }
        match self
            .copies
            .iter()
            .find(|copies| (copies.from, copies.to) == (from, to))
            .map(|copies| &copies.speed)
        {
            Some(Speed::Measured { bytes_per_second }) => {
                lines.push(format!("{:.1} GB/s measured", bytes_per_second / 1e9));
            }
            Some(Speed::Failed { reason }) => lines.push(format!("copies failed: {reason}")),
            None => {}
        }
        lines.join("\n")
    }
}

/// What a card says of itself.
fn own(card: &Card) -> String {
    let links = match &card.nvlinks {
        None => "NVLinks unknown".to_owned(),
        Some(links) if links.active == 0 => "no NVLinks".to_owned(),
        Some(links) => format!("{} NVLinks, {} to switches", links.active, links.to_switches),
    };
    format!("{}\n{links}", card.bus)
}

/// Times copies into one card from another.
fn measure(from: usize, to: usize) -> Result<Speed, String> {
    let open = |ordinal: usize| Device::open(&format!("cuda:{ordinal}")).map_err(|error| error.to_string());
    let (source, target) = (open(from)?, open(to)?);
    let measured = target.measure_copies_from(&source, COPY_BYTES).map_err(|error| error.to_string())?;
    measured
        .map(|bytes_per_second| Speed::Measured { bytes_per_second })
        .ok_or_else(|| "the device has no clock that means anything".to_owned())
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{NvLinks, PeerLink};

    use super::*;

    fn card(ordinal: usize, nvlinks: Option<NvLinks>) -> Card {
        Card { id: format!("cuda:{ordinal}"), bus: format!("0000:0{ordinal}:00.0"), nvlinks }
    }

    #[test]
    fn a_machine_without_cards_draws_nothing() {
        assert!(Joints::default().table().is_none());
    }

    #[test]
    fn one_card_shows_its_own_links() {
        let links = NvLinks { active: 18, to_switches: 18, remotes: Vec::new() };
        let topology = Topology { cards: vec![card(0, Some(links))], links: Vec::new() };
        let text = Joints { topology, copies: Vec::new() }.table().unwrap().to_string();
        assert!(text.contains("18 NVLinks, 18 to switches") && text.contains("0000:00:00.0"), "{text}");
    }

    #[test]
    fn two_cards_show_what_the_driver_said_and_what_was_measured() {
        let link = |from, to, access, nvlinks| PeerLink {
            from,
            to,
            access,
            performance_rank: 3,
            atomics: access,
            nvlinks,
        };
        let topology = Topology {
            cards: vec![card(0, Some(NvLinks::default())), card(1, None)],
            links: vec![link(0, 1, true, Some(4)), link(1, 0, false, None)],
        };
        let copies = vec![
            Copies { from: 0, to: 1, speed: Speed::Measured { bytes_per_second: 123.45e9 } },
            Copies { from: 1, to: 0, speed: Speed::Failed { reason: "no room".into() } },
        ];
        let joints = Joints { topology, copies };
        let text = joints.table().unwrap().to_string();
        for words in [
            "peer access, rank 3",
            "4 NVLinks",
            "123.5 GB/s measured",
            "copies through the host",
            "copies failed: no room",
            "no NVLinks",
            "NVLinks unknown",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
        let json = serde_json::to_value(&joints).unwrap();
        assert_eq!(json["links"][0]["performance_rank"], 3);
        assert_eq!(json["copies"][0]["state"], "measured");
        assert_eq!(json["copies"][1]["reason"], "no room");
        assert_eq!(json["cards"].as_array().unwrap().len(), 2);
    }
}
