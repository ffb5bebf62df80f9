// Declares the options of `sluice reducer` (docs/reference/configuration.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/option_set.h"
#include "cli/process/store_service.h"
#include "reducer/admin/http_server.h"
#include "reducer/reducer.h"

namespace sluice::cli {

class ReducerFlags {
 public:
  ReducerFlags() = default;
  ReducerFlags(const ReducerFlags&) = delete;
  ReducerFlags& operator=(const ReducerFlags&) = delete;

  // Adds the options. `set` must outlive the parse, this object the last reload.
  void add_to(OptionSet& set);

  // Returns kInvalidArgument when options of the command contradict each other. Reducer::start() checks the
  // reducer's options.
  [[nodiscard]] Result<void> check() const;
  // Returns the options; each value is within its range.
  [[nodiscard]] reducer::ReducerOptions options() const;
  // Returns the options of the HTTP server; nothing: no HTTP port. Throws Failure(kExitUsage).
  [[nodiscard]] std::optional<reducer::admin::HttpOptions> http_options() const;

  [[nodiscard]] const std::string& blackbox() const noexcept { return blackbox_; }  // empty: none
  [[nodiscard]] const StoreServiceOptions& models() const noexcept { return models_; }
  [[nodiscard]] int drain_exit_code() const noexcept { return static_cast<int>(drain_exit_code_); }
  [[nodiscard]] const std::string& port_file() const noexcept { return port_file_; }
  [[nodiscard]] const std::string& http_port_file() const noexcept { return http_port_file_; }
  [[nodiscard]] const ConfigFileOptions& config_file() const noexcept { return *config_file_; }

 private:
  void add_life_options(OptionSet& set);
  void add_capacity_options(OptionSet& set);
  void add_security_options(OptionSet& set);
  void add_speed_options(OptionSet& set);
  void add_deadline_options(OptionSet& set);
  void add_model_options(OptionSet& set);
  void add_diagnosis_options(OptionSet& set);

  reducer::ReducerOptions options_;
  std::shared_ptr<ConfigFileOptions> config_file_;
  StoreServiceOptions models_;
  std::string listen_ = "127.0.0.1:7470";
  std::string blackbox_;
  std::string port_file_;
  std::string http_listen_;
  std::string http_port_file_;
  std::string link_rate_;
  std::string mode_ = "service";
  uint32_t drain_exit_code_ = 0;
  std::vector<std::string> weights_;
  bool no_crc_ = false;
  bool anywhere_ = false;
};

}  // namespace sluice::cli
