//! Instructions that order threads and copies: barriers, fences, asynchronous copies and their groups.

use super::operands::Operands;
use super::text::Instruction;

/// Whether it asks if a phase of a barrier has ended.
pub(super) fn is_wait(one: &Instruction) -> bool {
    one.is("mbarrier.try_wait.parity") || one.is("mbarrier.test_wait.parity")
}

/// The call of `function` for such a question.
pub(super) fn wait(one: &Instruction, x: &Operands, function: &str) -> Option<String> {
    let scope = if one.has("cluster") { "Cluster" } else { "Block" };
    let (barrier, parity) = (x.barrier(x.at(one, 1)?)?, x.value(x.at(one, 2)?, "u32")?);
    Some(format!("gw::{function}<gw::Scope::{scope}>({barrier}, {parity})"))
}

/// The statement for one of them.
pub(super) fn call(one: &Instruction, x: &Operands) -> Option<String> {
    let opcode = one.opcode.as_str();
    let is = |prefix: &str| one.is(prefix);
    let raw = |number: usize| x.at(one, number);
    let at = |number: usize| x.value(raw(number)?, "u32");
    let known = |number: usize| x.constant(raw(number)?);
    let barrier = |number: usize| x.barrier(raw(number)?);
    let shared = |number: usize| x.shared(raw(number)?);
    let global = |number: usize| x.global(raw(number)?);
    // The state of a barrier is for waits that are not known.
    let is_unused = |number: usize| raw(number).is_some_and(|operand| !operand.starts_with('%'));
    if is_wait(one) {
        return x.assign(raw(0)?, &wait(one, x, "mbarrier_try_wait")?);
    }
    let found = if is("bar.warp.sync") {
        format!("gw::sync_warp({})", at(0)?)
    } else if is("barrier.cluster.arrive") {
        if opcode.contains("relaxed") {
            "gw::cluster_arrive_relaxed()".into()
        } else {
            "gw::cluster_arrive()".into()
        }
    } else if is("barrier.cluster.wait") {
        "gw::cluster_wait()".into()
    } else if is("bar.sync") || is("barrier.sync") {
        match one.operands.as_slice() {
            [id] if id == "0" => "gw::sync_threads()".into(),
            [_] => format!("gw::barrier_sync({}, gw::threads())", at(0)?),
            _ => format!("gw::barrier_sync({}, {})", at(0)?, at(1)?),
        }
    } else if is("bar.arrive") || is("barrier.arrive") {
        format!("gw::barrier_arrive({}, {})", at(0)?, at(1)?)
    } else if is("fence.proxy.async") {
        match opcode.strip_prefix("fence.proxy.async")? {
            "" => "gw::fence_async_proxy()".into(),
            ".global" => "gw::fence_async_proxy_global()".into(),
            ".shared::cta" => "gw::fence_async_proxy_shared()".into(),
            ".shared::cluster" => "gw::fence_async_proxy_cluster()".into(),
            _ => return None,
        }
    } else if is("fence.mbarrier_init") {
        "gw::fence_mbarrier_init()".into()
    } else if is("fence.sc") {
        let scope = match opcode.rsplit('.').next()? {
            "cta" => "Block",
            "cluster" => "Cluster",
            "gpu" => "Device",
            "sys" => "System",
            _ => return None,
        };
        format!("gw::fence_sc<gw::Scope::{scope}>()")
    } else if is("fence.acq_rel") || is("membar") {
        let scope = match opcode.rsplit('.').next()? {
            "cta" => "block",
            "cluster" => "cluster",
            "gpu" | "gl" => "device",
            "sys" => "system",
            _ => return None,
        };
        format!("gw::fence_{scope}()")
    } else if is("mbarrier.init") {
        format!("gw::mbarrier_init({}, {})", barrier(0)?, at(1)?)
    } else if is("mbarrier.inval") {
        format!("gw::mbarrier_invalidate({})", barrier(0)?)
    } else if is("mbarrier.arrive.expect_tx") && is_unused(0) && !opcode.contains("shared::cluster") {
        format!("gw::mbarrier_arrive_expect({}, {})", barrier(1)?, at(2)?)
    } else if is("mbarrier.expect_tx") && !opcode.contains("shared::cluster") {
        format!("gw::mbarrier_expect({}, {})", barrier(0)?, at(1)?)
    } else if is("mbarrier.arrive")
        && is_unused(0)
        && !opcode.contains("expect_tx")
        && !opcode.contains("shared::cluster")
    {
        format!("gw::mbarrier_arrive_many({}, {})", barrier(1)?, at(2).unwrap_or_else(|| "1".into()))
    } else if is("cp.async.bulk.commit_group") {
        "gw::bulk_commit()".into()
    } else if is("cp.async.bulk.wait_group") {
        let name = if opcode.ends_with(".read") { "bulk_wait_read" } else { "bulk_wait" };
        format!("gw::{name}<{}>()", known(0)?)
    } else if is("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
        || is("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes")
    {
        if opcode.contains("multicast") {
            return None;
        }
        format!("gw::bulk_load({}, {}, {}, {})", shared(0)?, global(1)?, at(2)?, barrier(3)?)
    } else if is("cp.async.bulk.global.shared::cta.bulk_group") {
        format!("gw::bulk_store({}, {}, {})", global(0)?, shared(1)?, at(2)?)
    } else if is("cp.async.ca.shared.global")
        || is("cp.async.cg.shared.global")
        || is("cp.async.ca.shared::cta.global")
        || is("cp.async.cg.shared::cta.global")
    {
        // Behind the bytes that are copied stand those that are read, or a hint of where to cache.
        let source = if opcode.contains("cache_hint") { None } else { at(3) };
        let source = source.map_or_else(|| known(2), Some)?;
        format!("gw::copy_async<{}>({}, {}, {source})", known(2)?, shared(0)?, global(1)?)
    } else if is("cp.async.commit_group") {
        "gw::copy_async_commit()".into()
    } else if is("cp.async.wait_group") {
        format!("gw::copy_async_wait<{}>()", known(0)?)
    } else if is("cp.async.wait_all") {
        "gw::copy_async_commit(); gw::copy_async_wait<0>()".into()
    } else if is("cp.async.mbarrier.arrive.noinc") {
        format!("gw::copy_async_arrive({})", barrier(0)?)
    } else if is("cp.async.mbarrier.arrive") {
        format!("gw::copy_async_arrive_besides({})", barrier(0)?)
    } else if is("wgmma.fence") {
        "gw::wgmma_fence()".into()
    } else if is("wgmma.commit_group") {
        "gw::wgmma_commit()".into()
    } else if is("wgmma.wait_group") {
        format!("gw::wgmma_wait<{}>()", known(0)?)
    } else if is("setmaxnreg.inc") {
        format!("gw::registers_acquire<{}>()", known(0)?)
    } else if is("setmaxnreg.dec") {
        format!("gw::registers_release<{}>()", known(0)?)
    } else if is("griddepcontrol.wait") {
        "gw::await_stream()".into()
    } else if is("griddepcontrol.launch_dependents") {
        "gw::admit_next()".into()
    } else if is("nanosleep") {
        "gw::pause()".into()
    } else if opcode == "trap" {
        "gw::trap()".into()
    } else {
        return None;
    };
    Some(found)
}
