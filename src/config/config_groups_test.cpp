#include <gtest/gtest.h>
#include <string>
#include <vector>
#include "config/config.h"
#include "config/config_keys.h"
#include "error_of.h"

namespace linnet {
namespace {
TEST(ConfigGroups, AreReadAndWrittenAgain) {
  const Config config = parse_config(R"(
[train]
freeze = "encoder.*"
[[train.groups]]
parameters = ["head.*", "*.bias"]
learning_rate_factor = 0.25
weight_decay = 0
optimizer = "sgd"
[[train.groups]]
parameters = "embedding.*"
frozen = true
storage = "int8"
)",
      "a file");
  ASSERT_EQ(config.train.groups.size(), 2u);
  EXPECT_EQ(config.train.groups[0].parameters, (std::vector<std::string>{"head.*", "*.bias"}));
  EXPECT_EQ(config.train.groups[0].learning_rate_factor, 0.25);
  EXPECT_EQ(config.train.groups[0].weight_decay, 0.0);
  EXPECT_EQ(config.train.groups[0].optimizer, "sgd");
  EXPECT_TRUE(config.train.groups[1].frozen);
  EXPECT_EQ(config.train.groups[1].storage, "int8");
  EXPECT_EQ(parse_config(to_toml(config, false), "again"), config);
  EXPECT_EQ(
      changed_keys(config, parse_config("[train]\nfreeze = \"encoder.*\"\n", "b")), std::vector<std::string>{"groups"});
}

TEST(ConfigGroups, AMistakeIsNamedWithItsLine) {
  const auto refused = [](const std::string& toml, const std::string& text) {
    const std::string message = error_of([&] { parse_config(toml, "f"); });
    EXPECT_PRED2(has_text, message, text);
  };
  refused("[[train.groups]]\nparameters = \"a\"\nfrosen = true\n", "f:3: unknown key \"frosen\"");
  refused("[[train.groups]]\nparameters = \"a\"\nfrosen = true\n", "\"frozen\"");
  refused("[[train.groups]]\nfrozen = true\n", "has no \"parameters\"");
  refused("[[train.groups]]\nparameters = \"a\"\nstorage = \"int8\"\n", "is for groups with frozen = true");
  refused("[[train.groups]]\nparameters = \"a\"\nstorage = \"fp8\"\n", "one of \"fp32\", \"bf16\", \"int8\"");
  refused("[[train.groups]]\nparameters = [1]\n", "f:2: \"parameters\" of a group");
  refused("[[train.groups]]\nparameters = \"a\"\nweight_decay = -1\n", "f:3: \"weight_decay\"");
  refused("[train]\ngroups = 3\n", "[[train.groups]]");
}
}  // namespace
}  // namespace linnet
