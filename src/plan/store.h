// Where the named inputs of graphs live. A store is a set of regions (parameters, optimizer state, one batch, the arena
// all plans share, ...) and a table from names to places in them. Sizes are declared first, so that the peak is known
// and can be printed or refused; memory is taken in one call.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "device/buffer.h"
#include "ir/tensor_type.h"

namespace linnet {

enum class MemoryKind { kParameters, kGradients, kOptimizer, kConstants, kBatch, kCache, kActivations, kWorkspace };
const char* memory_kind_name(MemoryKind kind);

using RegionId = int;

struct Location {
  RegionId region = -1;
  size_t offset = 0;  // bytes
};

class Store {
 public:
  RegionId add_region(std::string name, MemoryKind kind, size_t bytes);
  void grow_region(RegionId region, size_t bytes);  // to at least this size
  // `name` is at `location` and may take up to `capacity` bytes: a batch input has another shape in each bucket.
  void bind(const std::string& name, Location location, size_t capacity);

  bool has(const std::string& name) const { return bindings_.contains(name); }
  const Location& find(const std::string& name, size_t bytes) const;  // internal error when unknown or too small
  void allocate();                                                    // every region, once: addresses, not yet memory
  void touch() const;                                                 // takes the memory, which is zero
  std::byte* data(RegionId region) const;
  std::byte* data(const std::string& name) const;
  template <class T>
  T* as(const std::string& name) const {
    return reinterpret_cast<T*>(data(name));
  }

  struct Region {
    std::string name;
    MemoryKind kind;
    size_t bytes;
    Buffer buffer;
  };
  const std::vector<Region>& regions() const { return regions_; }
  size_t total_bytes() const;  // as the system counts them: whole pages

 private:
  struct Binding {
    Location location;
    size_t capacity;
  };
  std::vector<Region> regions_;
  std::map<std::string, Binding> bindings_;
  bool allocated_ = false;
};

}  // namespace linnet
