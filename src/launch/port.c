// Asks the system for a free port by binding to port 0, because only the system knows which ports
// are free.
#include "launch/port.h"

#include "base/os.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

tri_status launch_free_port(bool is_local, int *port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t size = sizeof address;
    int fd = tri_os.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    tri_status status =
        found ? TRI_OK
              : tri_os_fail("find", is_local ? "a free port at 127.0.0.1" : "a free IPv4 port");
    if (fd >= 0) tri_os.close(fd);
    *port = ntohs(address.sin_port);
    return status;
}
