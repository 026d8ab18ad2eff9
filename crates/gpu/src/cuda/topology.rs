//! How the cards are joined: the driver's attributes of pairs, and NVML's links.

use cudarc::driver::sys::{self, CUdevice, CUdevice_P2PAttribute as Attribute};

use crate::Result;
use crate::cuda::nvml::Nvml;
use crate::cuda::status::check;
use crate::cuda::{peer, properties};
use crate::types::{Card, PeerLink, Topology};

/// Reads the topology of these cards, which are all there are.
pub(super) fn read(devices: &[CUdevice]) -> Result<Topology> {
    let card = |(ordinal, &device): (usize, &CUdevice)| {
        let bus = properties::pci_bus_id(device)?;
        let nvlinks = Nvml::for_device(&bus).and_then(|nvml| nvml.links());
        Ok(Card { id: format!("cuda:{ordinal}"), bus, nvlinks })
    };
    let cards = devices.iter().enumerate().map(card).collect::<Result<Vec<_>>>()?;
    let mut links = Vec::new();
    for (from, &device) in devices.iter().enumerate() {
        for (to, &other) in devices.iter().enumerate().filter(|(to, _)| *to != from) {
            let straight = |links: &crate::types::NvLinks| {
                links.remotes.iter().filter(|remote| **remote == cards[to].bus).count() as u32
            };
            links.push(PeerLink {
                from,
                to,
                access: peer::can_access(device, other)?,
                performance_rank: of_pair(
                    Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
                    device,
                    other,
                )?,
                atomics: of_pair(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, other)?
                    != 0,
                nvlinks: cards[from].nvlinks.as_ref().map(straight),
            });
        }
    }
    Ok(Topology { cards, links })
}

fn of_pair(attribute: Attribute, device: CUdevice, other: CUdevice) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` is written by the call; both devices came from `cuDeviceGet`, and they differ.
    let status = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, attribute, device, other) };
    check("cuDeviceGetP2PAttribute", status)?;
    Ok(value.try_into().unwrap_or(0))
}
