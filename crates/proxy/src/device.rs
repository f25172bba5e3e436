//! What kind of device a client is, by what it says of itself: few words for the thousands of values of `User-Agent`,
//! so that responses that differ by it can be shared.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The field that says so: to origins, and to variants.
pub(crate) const CLASS: &str = "x-device-class";

static SEC_CH_UA_MOBILE: HeaderName = HeaderName::from_static("sec-ch-ua-mobile");

/// Puts the class in, whatever the client put there.
pub(crate) fn tell(request: &mut HeaderMap) {
    let class = HeaderValue::from_static(class(request));
    request.insert(CLASS, class);
}

/// `bot`, `tablet`, `phone` or `desktop`.
fn class(request: &HeaderMap) -> &'static str {
    let agent = request.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes).to_ascii_lowercase();
    let agent = String::from_utf8_lossy(&agent);
    let has = |words: &[&str]| words.iter().any(|word| agent.contains(word));
    let says_mobile = request.get(&SEC_CH_UA_MOBILE).is_some_and(|value| value == "?1");
    if has(&["bot", "crawl", "spider", "slurp"]) {
        "bot"
    } else if has(&["ipad", "tablet", "kindle", "silk/", "playbook"]) || has(&["android"]) && !has(&["mobi"]) {
        "tablet"
    } else if says_mobile || has(&["mobi", "iphone", "ipod", "phone"]) {
        "phone"
    } else {
        "desktop"
    }
}

/// Says to caches behind us that it matters.
pub(crate) fn vary(response: &mut HeaderMap) {
    let names = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let is_told = response
        .get_all(header::VARY)
        .iter()
        .map(names)
        .any(|line| line.split(',').map(str::trim).any(|name| name == "*" || name == header::USER_AGENT.as_str()));
    if !is_told {
        response.append(header::VARY, HeaderValue::from_static("User-Agent"));
    }
}

/// The names that select a variant, where the class stands for the agent.
pub(crate) fn selecting(names: &mut Vec<String>) {
    names.retain(|name| name != header::USER_AGENT.as_str() && name != CLASS);
    names.push(CLASS.to_owned());
    names.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_as_they_are() {
        for (agent, expected) in [
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36", "desktop"),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.0 Safari/605.1.15",
                "desktop",
            ),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148", "phone"),
            ("Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/120.0 Mobile Safari/537.36", "phone"),
            ("Mozilla/5.0 (Linux; Android 13; SM-X700) AppleWebKit/537.36 Chrome/120.0 Safari/537.36", "tablet"),
            ("Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148", "tablet"),
            ("Mozilla/5.0 (Android 14; Mobile; rv:120.0) Gecko/120.0 Firefox/120.0", "phone"),
            ("Mozilla/5.0 (Linux; Android 6.0.1) Mobile Safari/537.36 (compatible; Googlebot/2.1)", "bot"),
            ("curl/8.0", "desktop"),
            ("", "desktop"),
        ] {
            let mut request = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(agent))]);
            request.insert(CLASS, HeaderValue::from_static("mine"));
            tell(&mut request);
            assert_eq!(request[CLASS], expected, "{agent}");
        }
        let mut hinted = HeaderMap::from_iter([(SEC_CH_UA_MOBILE.clone(), HeaderValue::from_static("?1"))]);
        tell(&mut hinted);
        assert_eq!(hinted[CLASS], "phone");
    }

    #[test]
    fn the_agent_is_told_of_once_and_is_no_variant() {
        for (line, expected) in [("", "User-Agent"), ("Accept, user-agent", "Accept, user-agent"), ("*", "*")] {
            let mut response = HeaderMap::new();
            if !line.is_empty() {
                response.insert(header::VARY, HeaderValue::from_static(line));
            }
            vary(&mut response);
            assert_eq!(response.get_all(header::VARY).iter().collect::<Vec<_>>(), [expected]);
        }
        let mut names = vec!["accept".to_owned(), "user-agent".to_owned()];
        selecting(&mut names);
        assert_eq!(names, ["accept", CLASS]);
    }
}
