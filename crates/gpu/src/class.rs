//! Whose fault an error of the runtime is.

use gatework_contract::{Class, Classified};

use crate::Error;

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::UnknownDevice { .. }
            | Self::UnknownTarget { .. }
            | Self::SeveralDevices { .. }
            | Self::Environment { .. }
            | Self::NoSuchOrdinal { .. }
            | Self::Compile { .. }
            | Self::MissingInclude { .. }
            | Self::NoEntry { .. }
            | Self::Arguments { .. }
            | Self::Launch { .. }
            | Self::TensorMap { .. }
            | Self::Length { .. }
            | Self::Capture { .. }
            | Self::Graph { .. }
            | Self::ForeignDevice { .. }
            | Self::OutOfReach { .. }
            | Self::Foreign { .. }
            | Self::HostFunction { .. }
            | Self::NeedsCard { .. }
            | Self::Blas { .. } => Class::Input,
            Self::Peer { .. } => Class::Peer,
            Self::NoCuda { .. }
            | Self::Nccl { .. }
            | Self::OutOfMemory { .. }
            | Self::OutOfPinnedMemory { .. }
            | Self::NoCompiler { .. }
            | Self::NoNvrtc { .. }
            | Self::NoBlas { .. }
            | Self::NoTool { .. }
            | Self::Fault(_)
            | Self::Driver { .. }
            | Self::Io { .. }
            | Self::Load { .. } => Class::Device,
        }
    }
}
