// Class StatusPage is the HTML page at /: one document that loads nothing else.
//
// Its sources in reducer/admin/page/ are embedded by the build.
#pragma once

#include <string>

namespace sluice::reducer::admin {

class StatusPage {
 public:
  StatusPage();
  [[nodiscard]] const std::string& html() const noexcept { return html_; }
  // The Content-Security-Policy. It allows this script and this style, by their hashes, and requests to this
  // server. So a name that a client chose cannot inject a script.
  [[nodiscard]] const std::string& policy() const noexcept { return policy_; }

 private:
  std::string html_;
  std::string policy_;
};

}  // namespace sluice::reducer::admin
