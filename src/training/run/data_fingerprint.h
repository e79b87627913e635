// data.json in a run folder: what the training and validation data looked like, so that a resumed run notices when they
// are others now.
#pragma once
#include <string>
#include <vector>
#include "config/config.h"
#include "training/run/run_folder.h"
#include "training/run/training_run.h"

namespace linnet {

struct DataFingerprint {
  struct Entry {
    std::string key;       // of the configuration: "train_source", or "data_dir" for a folder of images
    uint64_t bytes;        // of the file, or of all files in the folder
    std::string checksum;  // of samples: the first, the last and 62 blocks between; of a folder, of names and sizes
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;

  // Pipes and devices are left out: they can be read only once.
  static DataFingerprint of(const Config& config);
  // Of a run folder; without entries when it has none.
  static DataFingerprint load(const std::string& folder);
  void save(const std::string& folder) const;

  const Entry* find(const std::string& key) const;
  // The keys whose data are in both and differ.
  std::vector<std::string> changes(const DataFingerprint& now) const;
};

// What is settled before a run begins: which folder it takes, what of its configuration a resumed run keeps, and that
// its checkpoints have room.

// Takes the folder: a new one, or one to resume whose configuration agrees. Returns where the task's assets come from;
// empty: they are made. User error for a folder that cannot be taken.
std::string open_folder(TrainRequest& request, RunFolder& folder);

// From here on the number of shards is a number, which stays that of the run on any number of ranks.
void divide_into_shards(Config& config);

// User error when the disk has no room for the checkpoints.
void check_space(const RunFolder& folder, const TrainingState& states);

}  // namespace linnet
