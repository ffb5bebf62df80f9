// Versions with known content for tests of VersionFiles.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "store/versions/version_files.h"

namespace sluice::store::test {

inline ShardShape small_shape() {
  ShardShape shape{.shard = 3, .arrays = 2, .elements = 64, .max_pushes = 4, .kept = 2};
  for (size_t i = 0; i < shape.fingerprint.size(); ++i) shape.fingerprint[i] = static_cast<uint8_t>(i + 1);
  return shape;
}

inline std::string slot_path(const std::string& folder, size_t slot) {
  return folder + "/0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20-3." +
         std::to_string(slot);
}

// Differs for each version, generation, array and element.
inline float value_of(uint64_t version, uint64_t generation, size_t array, size_t element) {
  return static_cast<float>(version * 8192 + generation % 64 * 128 + array * 64 + element);
}

inline void fill(const VersionWriter& writer, uint64_t version, uint64_t generation) {
  for (size_t a = 0; a < 2; ++a) {
    for (size_t i = 0; i < 64; ++i) writer.array(a)[i] = value_of(version, generation, a, i);
  }
}

inline std::array<PushIdentity, 2> pushes_of(uint64_t version, uint64_t generation) {
  return {{{1, version}, {2, version * 100 + generation}}};
}

inline void expect_content(const VersionView& view, uint64_t version, uint64_t generation) {
  ASSERT_TRUE(view.valid()) << "version " << version;
  EXPECT_EQ(view.version(), version);
  EXPECT_EQ(view.generation(), generation);
  EXPECT_EQ(view.steps(), version + 7);
  ASSERT_EQ(view.push_count(), 2u);
  for (size_t p = 0; p < 2; ++p) EXPECT_EQ(view.push(p), pushes_of(version, generation)[p]);
  for (size_t a = 0; a < 2; ++a) {
    for (size_t i = 0; i < 64; ++i)
      ASSERT_EQ(view.array(a)[i], value_of(version, generation, a, i)) << version << ' ' << a << ' ' << i;
  }
}

}  // namespace sluice::store::test
