/* Which hosts and addresses a server fetches media from. */
#include "remote_rules.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return remote_address_public((struct sockaddr *)&v4);
    CHECK_MSG(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1, "%s", text);
    return remote_address_public((struct sockaddr *)&v6);
}

TEST(addresses_of_private_networks_are_refused)
{
    static const char *const refused[] = {
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.8.8.8",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.1.1.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "3fff::1",
        "100::1",
    };
    static const char *const allowed[] = { "8.8.8.8",        "1.1.1.1",         "9.255.255.255",
                                           "11.0.0.1",       "100.63.255.255",  "100.128.0.1",
                                           "172.15.0.1",     "172.32.0.1",      "192.167.1.1",
                                           "223.1.1.1",      "2606:4700::1111", "2a00:1450:4001::1",
                                           "::ffff:8.8.8.8", "64:ff9b::808:808" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_MSG(!is_public(refused[i]), "%s is taken for public", refused[i]);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        CHECK_MSG(is_public(allowed[i]), "%s is refused", allowed[i]);
}

TEST(hosts_are_found_in_urls_as_a_client_finds_them)
{
    struct remote_host host;
    CHECK(remote_url_host(&host, "http://Example.ORG/a.mp4"));
    CHECK_STR(host.name, "example.org");
    CHECK(remote_url_host(&host, "https://example.org:8443?x=http://other/"));
    CHECK_STR(host.name, "example.org");
    CHECK(remote_url_host(&host, "http://[::1]:80/x"));
    CHECK_STR(host.name, "[::1]");
    CHECK(!remote_url_host(&host, "http://user@example.org/"));
    CHECK(!remote_url_host(&host, "http://allowed.org@evil.org/"));
    CHECK(!remote_url_host(&host, "http://allowed.org\\@evil.org/"));
    CHECK(!remote_url_host(&host, "http://allowed.org /"));
    CHECK(!remote_url_host(&host, "http://allowed.org\r\nHost: x/"));
    CHECK(!remote_url_host(&host, "http:///x"));
    CHECK(!remote_url_host(&host, "ftp://example.org/"));
    CHECK(!remote_url_host(&host, "//example.org/"));
}

static bool allowed(const char *url, const char *const *domains, int n)
{
    struct remote_host host;
    return CHECK_MSG(remote_url_host(&host, url), "%s", url) &&
           remote_host_allowed(&host, domains, n);
}

TEST(only_named_ports_are_allowed)
{
    static const char *const domains[] = { "example.org", ".videos.net:8080", "[2600::1]:81" };
    static const char *const bad[] = { "http://example.org:",        "http://example.org:0/",
                                       "http://example.org:65536/",  "http://example.org:80a/",
                                       "http://example.org:123456/", "http://[::1]x/" };
    struct remote_host host;
    CHECK(allowed("http://example.org:80/", domains, 3));
    CHECK(allowed("https://example.org/", domains, 3));
    CHECK(allowed("https://example.org:443/", domains, 3));
    CHECK(!allowed("http://example.org:443/", domains, 3));
    CHECK(!allowed("http://example.org:22/", domains, 3));
    CHECK(!allowed("http://example.org:6379/", domains, 3));
    CHECK(allowed("http://a.videos.net:8080/x", domains, 3));
    CHECK(!allowed("http://a.videos.net/x", domains, 3));
    CHECK(allowed("http://[2600::1]:81/", domains, 3));
    CHECK(!allowed("http://[2600::1]/", domains, 3));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!remote_url_host(&host, bad[i]), "%s", bad[i]);
}

TEST(only_named_hosts_are_allowed)
{
    static const char *const domains[] = { "example.org", ".videos.net" };
    CHECK(allowed("http://example.org/", domains, 2));
    CHECK(!allowed("http://www.example.org/", domains, 2));
    CHECK(!allowed("http://notexample.org/", domains, 2));
    CHECK(allowed("http://a.videos.net/", domains, 2));
    CHECK(!allowed("http://videos.net/", domains, 2));
    CHECK(!allowed("http://evilvideos.net/", domains, 2));
    CHECK(!allowed("http://example.org/", domains, 0));
}

/* Hosts of URLs: what they are here, and whether that is an address. NULL: refused. */
TEST(names_and_addresses_are_told_apart)
{
    static const struct {
        const char *host, *name;
        bool is_address;
    } rows[] = {
        { "127.0.0.1", "127.0.0.1", true },
        { "8.8.8.8.", "8.8.8.8", true },
        { "127.1", NULL, false },
        { "127.0.1", NULL, false },
        { "2130706433", NULL, false },
        { "0x7f000001", NULL, false },
        { "0X7F.1", NULL, false },
        { "0x7f.0x1", NULL, false },
        { "0x", NULL, false },
        { "017700000001", NULL, false },
        { "0177.0.0.1", NULL, false },
        { "1.2.3.4.5", NULL, false },
        { "256.1.1.1", NULL, false },
        { "example.1", NULL, false },
        { "127.0.0.1.example.com", "127.0.0.1.example.com", false },
        { "10.0.0.1.nip.io", "10.0.0.1.nip.io", false },
        { "0x7f.example", "0x7f.example", false },
        { "3com.example", "3com.example", false },
        { "1.2.3.4x", "1.2.3.4x", false },
        { "0xyz", "0xyz", false },
        { "1e100.net", "1e100.net", false },
        { "[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]", true },
        { "[::FFFF:7f00:1]", "[::ffff:127.0.0.1]", true },
        { "[0:0:0:0:0:0:0:1]", "[::1]", true },
        { "[2600:0::1]", "[2600::1]", true },
        { "[::1%25lo]", NULL, false },
        { "[127.0.0.1]", NULL, false },
        { "[]", NULL, false },
        { "[", NULL, false },
        { "::1", NULL, false },
        { "%31%32%37.0.0.1", NULL, false },
        { "a%2eexample.org", NULL, false },
        { ".example.org", NULL, false },
        { "example..org", NULL, false },
        { "example.org..", NULL, false },
        { ".", NULL, false },
        { "*.example.org", NULL, false },
        { "Example.ORG.", "example.org", false },
        { "my_clips.example", "my_clips.example", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct remote_host host;
        char url[80];
        bool valid;
        snprintf(url, sizeof url, "http://%s/x", rows[i].host);
        valid = remote_url_host(&host, url);
        CHECK_MSG(valid == (rows[i].name != NULL), "%s: %s", url, valid ? host.name : "refused");
        if (valid && rows[i].name) {
            CHECK_STR(host.name, rows[i].name);
            CHECK_MSG(host.is_address == rows[i].is_address, "%s", url);
        }
    }
}

TEST(addresses_are_allowed_by_their_own_rule_alone)
{
    static const char *const domains[] = { "8.8.4.4", ".example.com", "[2600:0:0::1]" };
    struct remote_domain d;
    CHECK(allowed("http://8.8.4.4/", domains, 3));
    CHECK(!allowed("http://8.8.4.5/", domains, 3));
    CHECK(!allowed("http://8.8.4.4.example.org/", domains, 3));
    CHECK(allowed("http://8.8.4.4.example.com/", domains, 3));
    CHECK(allowed("http://[2600::0001]/", domains, 3));
    CHECK(!allowed("http://[2600::2]/", domains, 3));
    CHECK(!remote_domain_parse(&d, ".4.4"));
    CHECK(!remote_domain_parse(&d, ".8.8.4.4"));
    CHECK(!remote_domain_parse(&d, ".[::1]"));
    CHECK(remote_domain_parse(&d, ".4.example"));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
