// A small HTTP/1.1 server on 127.0.0.1 for tests: one thread per connection; a function computes
// the answers.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace slimexx {

struct HttpAnswer {
  int status = 200;
  std::string body;
  bool hang_up = false;  // closes the connection without an answer
};

class HttpServer {
 public:
  // Called concurrently with the body of each request.
  using Handler = std::function<HttpAnswer(const std::string& body)>;

  // kOneByOne is like Python's http.server: one connection at a time, closed after its answer, with
  // a backlog of five.
  enum class Kind { kThreads, kOneByOne };

  explicit HttpServer(Handler handler, Kind kind = Kind::kThreads)
      : handler_(std::move(handler)), kind_(kind) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_, kind == Kind::kThreads ? 64 : 5);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }

  ~HttpServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (Connection& connection : connections_) {
      shutdown(connection.socket, SHUT_RDWR);
      connection.thread.join();
      close(connection.socket);
    }
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/reward"; }
  int num_connections() const { return num_connections_; }
  int max_concurrent() const { return max_concurrent_; }

 private:
  struct Connection {
    int socket = -1;
    std::thread thread;
  };

  void accept_all() {
    for (;;) {
      const int socket = accept(listener_, nullptr, nullptr);
      if (socket < 0) return;
      ++num_connections_;
      if (kind_ == Kind::kOneByOne) {
        serve(socket);
        close(socket);
        continue;
      }
      connections_.push_back({socket, std::thread([this, socket] { serve(socket); })});
    }
  }

  void serve(int socket) {
    std::string data;
    for (;;) {
      size_t header_end;
      while ((header_end = data.find("\r\n\r\n")) == std::string::npos) {
        if (!receive(socket, data)) return;
      }
      const size_t at = data.find("Content-Length: ");
      const size_t length = at < header_end ? std::stoul(data.substr(at + 16)) : 0;
      while (data.size() < header_end + 4 + length) {
        if (!receive(socket, data)) return;
      }
      const std::string body = data.substr(header_end + 4, length);
      data.erase(0, header_end + 4 + length);
      if (!answer(socket, body)) return;
    }
  }

  static bool receive(int socket, std::string& data) {
    char buffer[4096];
    const ssize_t n = recv(socket, buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    data.append(buffer, static_cast<size_t>(n));
    return true;
  }

  bool answer(int socket, const std::string& body) {
    const int now = ++concurrent_;
    int seen = max_concurrent_;
    while (now > seen && !max_concurrent_.compare_exchange_weak(seen, now)) {
    }
    const HttpAnswer answer = handler_(body);
    --concurrent_;
    if (answer.hang_up) {
      shutdown(socket, SHUT_RDWR);
      return false;
    }
    const std::string text = "HTTP/1.1 " + std::to_string(answer.status) +
                             " x\r\nContent-Length: " + std::to_string(answer.body.size()) +
                             (kind_ == Kind::kOneByOne ? "\r\nConnection: close" : "") +
                             "\r\n\r\n" + answer.body;
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return kind_ == Kind::kThreads;
  }

  Handler handler_;
  Kind kind_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;
  std::list<Connection> connections_;  // used by the acceptor until it has ended
  std::atomic<int> num_connections_ = 0, concurrent_ = 0, max_concurrent_ = 0;
};

}  // namespace slimexx
