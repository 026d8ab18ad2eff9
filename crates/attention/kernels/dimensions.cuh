#pragma once
// Lengths of rows in images, in bytes, from the table of dimensions.rs: DIM of queries and keys, VALUE_DIM of values.

#include "shared.cuh"

constexpr u32 VALUE_DIM = HeadDimension<DIM>::value_dim;
// A row of a swizzle has 128 bytes at most. Tiles of longer queries and keys are panels of PANEL columns, one after the other.
constexpr u32 PANEL = HeadDimension<DIM>::panel;
constexpr gw::Swizzle SWIZZLE = HeadDimension<DIM>::swizzle;
static_assert(DIM % PANEL == 0, "whole panels");
