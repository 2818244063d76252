//! What a person sees in a browser: from the experiments to a run's chart, a blocked gate, a live log.

use serde_json::json;
use sluice_tests::TestServer;

use crate::{
    browser_support::Browser,
    pipeline_support::{FakeRunner, start_pipeline},
    promotion_line::{Candidate, finish_pipeline, server, ship},
    tracking_support::{new_experiment, new_run, ok},
};

/// Counts the pixels of the first chart that have a colour of their own, i.e. belong to the curve.
const COLOURED: &str = "
    const canvas = document.querySelector('.plot canvas');
    if (!canvas || !canvas.width) return 0;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 100 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) count += 1;
    }
    return count > 100 ? count : 0;";

async fn log_loss(server: &TestServer, run: &str, steps: std::ops::Range<i32>) {
    let points: Vec<_> = steps
        .map(|step| json!({ "key": "loss", "value": 2.3 / (1.0 + f64::from(step) / 9.0), "timestamp": 1000 + step, "step": step }))
        .collect();
    ok(server, "runs/log-batch", json!({ "run_id": run, "metrics": points })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_experiments_to_the_chart_of_a_running_run() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "digits").await;
    let run = new_run(&server, &experiment, "brisk-otter").await;
    log_loss(&server, &run, 0..150).await;

    let browser = Browser::start(&server).await;
    browser.open("/").await;
    browser.wait_text("h1", "Experiments").await;
    browser.click("digits").await;
    browser.click("brisk-otter").await;
    assert_eq!(browser.path().await, format!("/runs/{run}"));
    browser.wait_script("the curve is drawn", COLOURED).await;
    let label = browser.script("return document.querySelector('.plot').getAttribute('aria-label')").await;
    assert!(label.as_str().unwrap().starts_with("loss: 150 points, last "), "{label}");

    // it is live: what is logged now shows without a reload
    browser.wait_script("the page is live", "return document.getElementById('live').dataset.state === 'live'").await;
    browser.script("window.same = true").await;
    log_loss(&server, &run, 150..300).await;
    browser.wait_text("#region-metrics", "300").await;
    browser.click("data").await;
    browser
        .wait_script(
            "the chart has the new points",
            "return [...document.querySelectorAll('.chart td')].some((cell) => cell.textContent === '299')",
        )
        .await;
    ok(&server, "runs/update", json!({ "run_id": run, "status": "FINISHED", "end_time": 9000 })).await;
    browser.wait_text("#region-head", "finished").await;
    assert_eq!(browser.script("return window.same").await, true, "the page was not loaded again");
    browser.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_keeps_its_state_in_the_url_and_links_of_mlflow_arrive() {
    let server = TestServer::start().await;
    let experiment = new_experiment(&server, "table").await;
    for (name, loss) in [("low", 0.1), ("high", 0.9)] {
        let run = new_run(&server, &experiment, name).await;
        ok(&server, "runs/log-metric", json!({ "run_id": run, "key": "val/loss", "value": loss, "timestamp": 1, "step": 1 })).await;
        ok(&server, "runs/log-parameter", json!({ "run_id": run, "key": "lr", "value": "0.1" })).await;
    }
    let browser = Browser::start(&server).await;
    browser.open(&format!("/#/experiments/{experiment}")).await;
    browser.wait_text("h1", "table").await;

    browser.click("val/loss").await;
    browser.wait_script("sorted", "return document.querySelector('th[aria-sort=descending]')?.textContent.includes('val/loss')").await;
    assert_eq!(browser.text("table.runs tbody th").await, "high");
    let filter = browser.driver.find(thirtyfour::By::Id("filter")).await.unwrap();
    filter.send_keys("metrics.`val/loss` < 0.5\n").await.unwrap();
    browser.wait_text(".count", "1 of 2 runs").await;
    assert_eq!(browser.text("table.runs tbody th").await, "low");
    let path = browser.path().await;
    assert!(path.contains("order_by=") && path.contains("filter="), "{path}");
    browser.open(&path).await;
    browser.wait_text(".count", "1 of 2 runs").await;
    browser.driver.back().await.unwrap();

    let run = new_run(&server, &experiment, "linked").await;
    browser.open("/experiments").await;
    browser.open(&format!("/#/experiments/{experiment}/runs/{run}")).await;
    browser.wait_text("h1", "linked").await;
    assert_eq!(browser.path().await, format!("/runs/{run}"));
    browser.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_gate_says_why() {
    let server = server().await;
    ship(&server, &Candidate::new(2.0, None)).await;
    let worse = Candidate { accuracy: Some(0.9), ..Candidate::new(3.0, Some(1)) };
    let pipeline = finish_pipeline(&server, &worse).await;

    let browser = Browser::start(&server).await;
    browser.open(&format!("/pipelines/{pipeline}")).await;
    browser.wait_text("#region-head", "blocked").await;
    let reason = browser.text("#region-head .reason").await;
    assert!(reason.contains("accuracy 0.9 is below the limit 0.95"), "{reason}");

    browser.click("Gate and evidence").await;
    let panel = browser.wait_text("#region-gate .gate", "accuracy 0.9 is below the limit 0.95").await;
    for part in ["fail", "metric_threshold accuracy", "0.9", "≥ 0.95", "champion v1"] {
        assert!(panel.contains(part), "{part} in {panel}");
    }
    assert_eq!(browser.path().await, "/models/digits/versions/2");
    browser.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_and_a_rollback_are_forms() {
    let server = server().await;
    finish_pipeline(&server, &Candidate::new(2.0, None)).await;
    let browser = Browser::start(&server).await;
    browser.open("/models").await;
    browser.click("digits").await;
    browser.click("v1").await;
    browser.wait_text("#region-head", "needs approval").await;
    let comment = browser.driver.find(thirtyfour::By::Name("comment")).await.unwrap();
    comment.send_keys("looks right").await.unwrap();
    browser.click("Approve").await;
    browser.wait_text(".flash", "Approved for champion").await;
    browser.wait_text("#region-history", "looks right").await;

    ship(&server, &Candidate::new(3.0, Some(1))).await;
    browser.open("/models/digits").await;
    browser.wait_text("#region-head", "champion v2").await;
    browser.driver.find(thirtyfour::By::Css(".rollback summary")).await.unwrap().click().await.unwrap();
    browser.click("Roll champion back").await;
    browser.wait_text(".flash", "went back from v2 to v1").await;
    assert_eq!(crate::promotion_line::champion(&server).await, Some(1));
    browser.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_log_grows_and_a_job_is_cancelled() {
    let server = TestServer::start().await;
    let file = "version: 1\non: { push: { branches: [main] } }\njobs:\n  train: { run: python train.py }\n  after: { needs: [train], run: echo }\n";
    let pipeline = start_pipeline(&server, "live", file).await;
    let runner = FakeRunner::register(&server, "one").await;
    let attempt = runner.must_claim().await;
    attempt.log(0, "first line\nopen li").await.expect(200);

    let browser = Browser::start(&server).await;
    browser.open(&format!("/pipelines/{}", pipeline["id"])).await;
    browser.click("train").await;
    let log = browser.wait_text("pre.log", "open li").await;
    assert!(log.contains("first line"), "{log}");
    browser.wait_text("#log-state", "live").await;

    attempt.log(1, "ne\n\u{1b}[31mred\u{1b}[0m <b>not bold</b>\n").await.expect(200);
    browser.wait_text("pre.log", "open line").await;
    let log = browser.wait_text("pre.log", "<b>not bold</b>").await;
    assert!(!log.contains('\u{1b}'), "{log}");
    assert_eq!(browser.text("pre.log .a1").await, "red");
    assert_eq!(browser.script("return document.querySelectorAll('pre.log .ln').length").await, 3);
    browser.open(&format!("/jobs/{}#L3", attempt.job_id())).await;
    browser.wait_script("the line of the link", "return document.querySelector('.ln:target')?.id === 'L3'").await;

    browser.click("Cancel").await;
    browser.wait_text(".flash", "Cancelled").await;
    attempt.result("cancelled", Some("cancelled")).await.expect(200);
    browser.wait_text("#region-head", "cancelled").await;
    browser.wait_text("#log-state", "complete").await;
    browser.finish().await;
}
