// Options of `sluice reducer`, declared: command line, variables and file alike (docs/configuration.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/option_set.h"
#include "reducer/reducer.h"

namespace sluice::cli {

class ReducerFlags {
 public:
  ReducerFlags() = default;
  ReducerFlags(const ReducerFlags&) = delete;
  ReducerFlags& operator=(const ReducerFlags&) = delete;

  // Adds the options; `set` and this object outlive the parse, and this one what is read again.
  void add_to(OptionSet& set);

  // kInvalidArgument: options of the command that don't fit together. Of the reducer's own Reducer::start
  // says.
  [[nodiscard]] Result<void> check() const;
  // What was given. Each value is within its range.
  [[nodiscard]] reducer::ReducerOptions options() const;

  [[nodiscard]] const std::string& port_file() const noexcept { return port_file_; }
  [[nodiscard]] const std::string& http_port_file() const noexcept { return http_port_file_; }
  [[nodiscard]] const ByFile& by_file() const noexcept { return *by_file_; }

 private:
  void add_life(OptionSet& set);
  void add_sessions(OptionSet& set);
  void add_security(OptionSet& set);
  void add_speed(OptionSet& set);
  void add_deadlines(OptionSet& set);

  reducer::ReducerOptions options_;
  std::shared_ptr<ByFile> by_file_;
  std::string listen_ = "127.0.0.1:7470";
  std::string port_file_;
  std::string http_listen_;
  std::string http_port_file_;
  std::string mode_ = "service";
  std::vector<std::string> weights_;
  bool no_crc_ = false;
  bool anywhere_ = false;
};

}  // namespace sluice::cli
