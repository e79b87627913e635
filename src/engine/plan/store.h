// Holds the named inputs of graphs: regions (parameters, optimizer state, one batch, the arena that all plans share,
// ...) and a table from names to locations in them. Sizes are declared first, so that the peak is known and can be
// printed or refused; memory is then allocated in one call.
//
// The regions lie on a device. If it has its own memory, data() is the host's copy: of batches, copied in every run of
// a plan, and of states, which push() and pull() copy. All else has no host copy.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "engine/device/device.h"
#include "engine/ops/kernel.h"

namespace linnet {
// Names of the state that plans keep in a store between runs. Further ranges of parameters and other forms of the
// optimizers add suffixes: "moment1.1", "moment2.rest" (training/trainer/range_update.h).
namespace state {
inline constexpr const char* kParameters = "parameters";
inline constexpr const char* kConstants = "constants";
inline constexpr const char* kAverage = "ema";  // of the parameters
inline constexpr const char* kGradient = "gradient";
inline constexpr const char* kMoment1 = "moment1";
inline constexpr const char* kMoment2 = "moment2";
// Of a step (training/trainer/step_graphs.h).
inline constexpr const char* kControl = "control";  // learning rate and number
inline constexpr const char* kRandom = "random";
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLossSum = "loss_sum";
inline constexpr const char* kTokenCount = "token_count";
inline constexpr const char* kSumOfSquares = "sum_of_squares";  // of the gradient

// What ranks that divide the optimizer's states have a part of.
inline bool is_moment(std::string_view name) { return name.starts_with("moment"); }
inline bool is_gradient(std::string_view name) { return name.starts_with(kGradient); }
}  // namespace state

enum class MemoryKind {
  kParameters,
  kGradients,
  kOptimizer,
  kConstants,
  kBatch,
  kData,
  kCache,
  kActivations,
  kWorkspace
};
template <> inline constexpr std::array kEnumNames<MemoryKind>{"parameters", "accumulated gradient", "optimizer",
    "constants", "batches", "resident data", "decoding cache", "activations, gradients", "workspace"};

using RegionId = int;

struct Location {
  RegionId region = -1;
  size_t offset = 0;  // bytes
  auto operator<=>(const Location&) const = default;
};

class Store {
 public:
  explicit Store(const Backend& backend = cpu_backend()) : backend_(&backend) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  const Backend& backend() const { return *backend_; }
  Device& device() const { return *backend_->device; }

  // The ranks that run the store's plans together (distributed/comm/tensor_group.h); null: this rank alone.
  struct Groups {
    Communicator* tensor = nullptr;
    Communicator* pipeline = nullptr;
  };
  const Groups& groups() const { return groups_; }
  void set_groups(const Groups& groups) { groups_ = groups; }

  RegionId add_region(std::string name, MemoryKind kind, size_t bytes);
  void grow_region(RegionId region, size_t bytes);  // to at least this size
  // A region of another store, which is allocated already and outlives this one.
  RegionId share_region(const Store& owner, RegionId region);
  // Binds `name` to up to `capacity` bytes at `location`: a batch input has another shape in each bucket.
  void bind(const std::string& name, Location location, size_t capacity);
  // Adds a region bound to its name, or one for several names, each on its own cache lines or with a larger alignment.
  void declare(const std::string& name, MemoryKind kind, size_t bytes);
  using Parts = std::vector<std::pair<std::string, size_t>>;  // names and bytes
  RegionId declare_together(std::string region, MemoryKind kind, const Parts& parts, size_t alignment = 64);
  // The same from `begin` on in a region that grows to hold them.
  void bind_together(Location begin, const Parts& parts, size_t alignment = 64);

  bool has(const std::string& name) const { return bindings_.contains(name); }
  const Location& find(const std::string& name, size_t bytes) const;  // internal error when unknown or too small
  // Every region, once: addresses, not yet memory. User error where the machine has too little.
  void allocate();
  void touch() const;                          // takes the memory; what was not written is zero
  std::byte* location(RegionId region) const;  // on the device
  // Copies between host and device; waits.
  void push(const std::string& name) const;
  void pull(const std::string& name) const;
  // Copies bytes from the host into a binding on host or device; waits.
  void fill(const std::string& name, const void* from, size_t bytes) const;
  std::byte* data(RegionId region) const;
  std::byte* data(const std::string& name) const;
  template <class T> T* as(const std::string& name) const { return reinterpret_cast<T*>(data(name)); }

  struct Region {
    std::string name;
    MemoryKind kind;
    size_t bytes;
    std::byte* memory = nullptr;   // on the device
    Buffer host_copy;              // where the device has memory of its own
    const Store* owner = nullptr;  // of a shared region: who has the memory, as which of its regions
    RegionId owned_as = -1;
  };
  bool is_on_host(const Region& region) const;  // has data()
  const std::vector<Region>& regions() const { return regions_; }
  size_t total_bytes() const;  // of the device's memory, as Device::footprint() counts; without shared regions

  struct Binding {
    Location location;
    size_t capacity;
  };
  const std::map<std::string, Binding>& bindings() const { return bindings_; }

 private:
  const Backend* backend_;
  Groups groups_;
  std::vector<Region> regions_;
  std::map<std::string, Binding> bindings_;
  bool allocated_ = false;
};

void set_totals(const Store& store, float loss_sum, float token_count);  // of the state
}  // namespace linnet
