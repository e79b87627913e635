// The checksums of packed models, for packed_model.cpp and packed_model_writer.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>
#include "formats/safetensors.h"
#include "formats/weight_files.h"

namespace linnet {

// The checksum of the index continues `state` by the name, type and shape of each tensor, in the order of their names,
// and begins with that of the metadata.
uint64_t add_head(uint64_t state, const std::string& name, FileDType dtype, const Shape& shape);
uint64_t metadata_checksum(const SafetensorsMetadata& metadata, int version);

using PackedEntries = std::vector<const SafetensorsEntry*>;
PackedEntries entries_by_name(const SafetensorsFile& file);

// Of the data of each tensor, computed by several threads.
std::vector<uint64_t> data_sums(const PackedEntries& entries);
// The same of a tensor that is made as it is needed, in `bytes`.
uint64_t data_sum(const WeightSource& weight, std::vector<std::byte>& bytes);

}  // namespace linnet
